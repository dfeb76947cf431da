import std/[algorithm, strutils, tables]

type Refusal = object of CatchableError

proc refuse(code: int) = raise newException(Refusal, "refused " & $code)

var counts = initCountTable[string]()
for word in "the cat and the dog and the bird".split: counts.inc word
var words: seq[string]
for word in counts.keys: words.add word
words.sort
for word in words: echo word, " ", counts[word]
try: refuse(4)
except Refusal as error: echo error.msg
var list = @[1, 2, 3]
try: echo list[words.len + 10]
except IndexDefect as error: echo error.msg
var lists: seq[seq[int]]
for i in 0 .. 2000: lists.add newSeq[int](i)
var total = 0
for list in lists: total += list.len
echo total, " ", 1e-5, " ", 0.1 + 0.2
