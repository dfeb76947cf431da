import std.algorithm, std.array, std.concurrency, std.stdio, std.string;

class Refusal : Exception { this(string text) { super(text); } }
int counter; // thread-local

void worker(Tid owner, int step) {
    foreach (i; 0 .. step) counter++;
    owner.send(counter);
}

void main() {
    int[string] counts;
    foreach (word; "the cat and the dog and the bird".split) counts[word]++;
    foreach (word; counts.keys.sort) writefln("%s %s", word, counts[word]);
    try throw new Refusal("refused");
    catch (Refusal error) writeln(error.msg);
    foreach (step; 1 .. 4) {
        spawn(&worker, thisTid, step);
        writeln(receiveOnly!int);
    }
    writeln(iota_sum, " ", counter);
    auto lists = new int[][1000];
    foreach (i, ref list; lists) list = new int[i];
    import core.memory : GC;
    GC.collect();
    writeln(lists.map!(list => list.length).sum);
}

long iota_sum() {
    import std.range : iota;
    return iota(1, 101).filter!(n => n % 3 == 0).sum;
}
