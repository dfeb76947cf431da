program words;
{$mode objfpc}
uses SysUtils, Classes;
type
  Refusal = class(Exception);
var
  list: TStringList;
  i: integer;
  total: int64 = 0;
  numbers: array of integer;
begin
  list := TStringList.Create;
  list.Sorted := true;
  list.CommaText := 'the,cat,saw,a,dog';
  for i := 0 to list.Count - 1 do writeln(list[i]);
  try
    raise Refusal.Create('refused');
  except
    on error: Refusal do writeln(error.Message);
  end;
  setlength(numbers, 1000);
  for i := 0 to 999 do numbers[i] := i * i;
  for i := 0 to 999 do total := total + numbers[i];
  writeln(total, ' ', format('%.4f', [3.14159]));
  list.Free;
  halt(3);
end.
