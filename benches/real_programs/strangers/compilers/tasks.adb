with Ada.Text_IO; use Ada.Text_IO;
with Ada.Exceptions;
with Ada.Containers.Ordered_Maps;

procedure Tasks is
   package Maps is new Ada.Containers.Ordered_Maps (Integer, Integer);
   Map : Maps.Map;
   protected Total is
      procedure Add (Value : Integer);
      function Get return Integer;
   private
      Sum : Integer := 0;
   end Total;
   protected body Total is
      procedure Add (Value : Integer) is
      begin
         Sum := Sum + Value;
      end Add;
      function Get return Integer is (Sum);
   end Total;
   task type Worker (Step : Integer);
   task body Worker is
   begin
      for I in 1 .. 100 loop
         Total.Add (I * Step);
      end loop;
   end Worker;
   Refusal : exception;
   Values : array (1 .. 3) of Integer := (1, 2, 3);
begin
   declare
      First : Worker (1);
      Second : Worker (2);
   begin
      null;
   end;
   Put_Line (Integer'Image (Total.Get));
   begin
      raise Refusal with "refused";
   exception
      when Error : Refusal => Put_Line (Ada.Exceptions.Exception_Message (Error));
   end;
   begin
      Values (Total.Get) := 0;
   exception
      when Constraint_Error => Put_Line ("out of range");
   end;
   for I in 1 .. 10 loop
      Map.Insert (I * 7 mod 11, I);
   end loop;
   for Value of Map loop
      Put (Integer'Image (Value));
   end loop;
   New_Line;
end Tasks;
