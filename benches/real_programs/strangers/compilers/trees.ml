module Names = Map.Make (String)
exception Refused of int

let rec sum depth = if depth = 0 then 1. else sum (depth - 1) +. (0.5 *. sum (depth - 1))

let () =
  let names = List.fold_left (fun map (k, v) -> Names.add k v map) Names.empty [ ("b", 2); ("a", 1); ("c", 3) ] in
  Names.iter (Printf.printf "%s %d\n") names;
  (try raise (Refused 4) with Refused code -> Printf.printf "refused %d\n" code);
  (try ignore (List.hd []) with Failure text -> print_endline text);
  Printf.printf "%.6f\n" (sum 12);
  let total = ref 0 and lock = Mutex.create () in
  let add step = for i = 1 to 100 do Mutex.lock lock; total := !total + (i * step); Mutex.unlock lock done in
  List.iter Thread.join (List.map (Thread.create add) [ 1; 2; 3 ]);
  Printf.printf "%d %s\n" !total (String.concat "," (Str.split (Str.regexp "[ ;]+") "one two;three"));
  let rec deep n = if n = 0 then 0 else 1 + deep (n - 1) in
  Printf.printf "%d\n" (deep 10000);
  Gc.compact ();
  Printf.printf "%d\n" (Unix.getpid () - Unix.getpid ());
  at_exit (fun () -> print_endline "end");
  exit 5
