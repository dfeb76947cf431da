// LLVM 19's ORC and JITLink. The program does the same as `ours.rs` and `ours_calls.rs`, with the same objects. A run measures one
// mode and prints one JSON object. `orc.rs` runs it.
#include "orc_fixture.hpp"

#include "llvm/Config/llvm-config.h"
#include "llvm/ExecutionEngine/Orc/IndirectionUtils.h"

#include <atomic>
#include <thread>

// Counts the allocations of this thread; the C library serves them. With another allocator nothing is counted.
static thread_local uint64_t allocations;
#ifndef OTHER_ALLOCATOR
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *malloc(size_t size) { return allocations++, __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return allocations++, __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return allocations++, __libc_realloc(old, size); }
void *aligned_alloc(size_t alignment, size_t size) { return allocations++, __libc_memalign(alignment, size); }
}
#endif

// Times the links of a batch, then calls what was linked. Returns the heap allocations of all links.
static uint64_t linkBatch(Fixture &fixture, Samples &links, std::vector<ResourceTrackerSP> &live) {
  uint64_t addresses[BATCH];
  fixture.makeBatch();
  uint64_t before = allocations;
  links.batch([&] {
    for (size_t i = 0; i < BATCH; i++)
      links.one([&] {
        auto [tracker, address] = fixture.session.link(fixture.dylib, fixture.batch[i]);
        live.push_back(std::move(tracker));
        addresses[i] = address;
      });
  });
  uint64_t allocated = allocations - before;
  for (size_t i = 0; i < BATCH; i++)
    fixture.batch[i].check(addresses[i]);
  return allocated;
}

static void link(Fixture &fixture, Figures &figures) {
  Samples adds;
  uint64_t allocated = 0;
  std::vector<ResourceTrackerSP> live;
  size_t operations = fixture.operations() / BATCH * BATCH;
  live.reserve(operations);
  while (live.size() < operations)
    allocated += linkBatch(fixture, adds, live);
  figures.add("add", adds);
  figures.add("allocations", double(allocated) / operations);
  Samples removals;
  removals.batch([&] {
    while (!live.empty()) {
      ResourceTrackerSP tracker = takeAny(live, fixture.rng);
      removals.one([&] { check(tracker->remove()); tracker = nullptr; });
    }
  });
  figures.add("remove", removals);
}

// The bytes of each object are in no cache when it is linked.
static void coldLink(Fixture &fixture, Figures &figures) {
  fixture.isCold = true;
  link(fixture, figures);
}

static void removal(Fixture &fixture, Figures &figures) {
  std::vector<ResourceTrackerSP> live = fixture.fill(fixture.arguments.number("live"));
  Samples removals, links;
  for (size_t done = 0; done < fixture.operations(); done += BATCH) {
    ResourceTrackerSP victims[BATCH];
    for (ResourceTrackerSP &victim : victims)
      victim = takeAny(live, fixture.rng);
    removals.batch([&] {
      for (ResourceTrackerSP &victim : victims)
        removals.one([&] { check(victim->remove()); victim = nullptr; });
    });
    linkBatch(fixture, links, live);
  }
  figures.add("remove", removals);
  figures.add("link", links);
}

// Links modules with names that were never used before; each replaces another.
static Samples replace(Fixture &fixture, std::vector<ResourceTrackerSP> &live) {
  Samples samples;
  for (size_t done = 0; done < fixture.operations(); done += BATCH) {
    fixture.makeBatch();
    samples.batch([&] {
      for (const Instance &instance : fixture.batch)
        samples.one([&] {
          ResourceTrackerSP &place = live[fixture.rng() % live.size()];
          ResourceTrackerSP tracker = fixture.session.linkChecked(fixture.dylib, instance);
          std::swap(place, tracker);
          check(tracker->remove());
        });
    });
  }
  return samples;
}

static void churn(Fixture &fixture, Figures &figures) {
  std::vector<ResourceTrackerSP> live = fixture.fill(fixture.arguments.number("live"));
  Samples samples = replace(fixture, live);
  figures.add("rate", samples.perSecond());
  figures.add("operation", samples);
}

// In the set-up `best`, the session sometimes removes names that are no longer used.
static void growth(Fixture &fixture, Figures &figures) {
  std::vector<ResourceTrackerSP> live = fixture.fill(fixture.arguments.number("live"));
  auto measure = [&] {
    replace(fixture, live);
    if (fixture.session.best())
      fixture.session.inner().getSymbolStringPool()->clearDeadEntries();
    return Resident::measure().bytes;
  };
  // The first replacement leaves free memory that the next ones use; after two the state is steady.
  measure();
  double before = measure();
  figures.add("growth", (measure() - before) / fixture.operations());
}

// The number of prepared instances in each thread's ring, and of live ones among them.
constexpr size_t RING = 256, LIVE_IN_RING = 100;

struct Worker {
  Session &session;
  JITDylib &dylib;
  std::vector<Instance> ring{RING};
  std::vector<ResourceTrackerSP> live{RING};
  size_t at = 0;

  Worker(Fixture &fixture, JITDylib &dylib) : session(fixture.session), dylib(dylib) {
    for (Instance &instance : ring)
      fixture.instances.next(instance);
    run(RING);
  }
  void run(size_t operations) {
    for (size_t end = at + operations; at < end; at++) {
      live[at % RING] = session.linkChecked(dylib, ring[at % RING]);
      ResourceTrackerSP oldest = std::move(live[(at + RING - LIVE_IN_RING) % RING]);
      if (oldest)
        check(oldest->remove());
    }
  }
};

// The work of so many threads at once, each on its own processor: operations per second, and the share of those processors that
// the process had.
struct Window {
  double rate, share;
};

template <class F> static Window together(size_t threads, size_t operations, F &&work) {
  std::atomic<size_t> ready{0};
  std::atomic<bool> isOn{false};
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads; i++)
    running.emplace_back([&, i] {
      cpu_set_t processor;
      CPU_ZERO(&processor);
      CPU_SET(i, &processor);
      pthread_setaffinity_np(pthread_self(), sizeof processor, &processor);
      for (ready++; !isOn;)
        ;
      work(i);
    });
  while (ready != threads)
    std::this_thread::yield();
  uint64_t cpu = cpuTime(), start = now();
  isOn = true;
  for (std::thread &thread : running)
    thread.join();
  double time = now() - start;
  return {threads * operations * 1e9 / time, (cpuTime() - cpu) / time / threads};
}

// Returns the rate of the window in which other programs used least of the processors. Measures more windows if they use much.
template <class F> static double undisturbed(size_t threads, size_t operations, F &&work) {
  constexpr size_t WINDOWS = 5, MAX_WINDOWS = 10;
  Window best{0, 0};
  for (size_t i = 0; i < MAX_WINDOWS && (i < WINDOWS || best.share < 0.95); i++) {
    Window window = together(threads, operations, work);
    if (window.share > best.share)
      best = window;
  }
  return best.rate;
}

static void threads(Fixture &fixture, Figures &figures) {
  size_t operations = fixture.operations();
  JITDylib &first = fixture.session.dylib("first"), &second = fixture.session.dylib("second");
  auto measure = [&](JITDylib &other) {
    Worker workers[2] = {{fixture, first}, {fixture, other}};
    auto work = [&](size_t i) { workers[i].run(operations); };
    double one = undisturbed(1, operations, work), two = undisturbed(2, operations, work);
    for (Worker &worker : workers)
      for (ResourceTrackerSP &live : worker.live)
        if (live)
          check(live->remove());
    return std::pair(one, two);
  };
  auto [one, two] = measure(second);
  auto [oneOfShared, twoInOne] = measure(first);
  figures.add("one", one);
  figures.add("two", two);
  figures.add("ratio", two / one);
  figures.add("shared", twoInOne / oneOfShared);
}

static void lookup(Fixture &fixture, Figures &figures) {
  size_t count = fixture.arguments.number("live"), operations = fixture.operations();
  ExecutionSession &session = fixture.session.inner();
  std::vector<std::string> names;
  std::vector<SymbolStringPtr> interned;
  SymbolMap symbols;
  for (size_t i = 0; i < count; i++) {
    names.push_back("some_symbol_" + std::to_string(i));
    interned.push_back(session.intern(names.back()));
    symbols[interned.back()] = {ExecutorAddr(0x1000 + i), JITSymbolFlags::Exported};
  }
  JITDylib &dylib = session.createBareJITDylib("symbols");
  check(dylib.define(absoluteSymbols(std::move(symbols))));
  // In random order, drawn before the clock starts.
  std::vector<uint32_t> order(operations);
  for (uint32_t &symbol : order)
    symbol = fixture.rng() % count;
  auto work = [&](size_t) {
    for (uint32_t symbol : order) {
      uint64_t address = fixture.session.best()
                             ? check(session.lookup({&dylib}, interned[symbol])).getAddress().getValue()
                             : fixture.session.address(dylib, names[symbol]);
      if (address != 0x1000 + symbol)
        die("wrong address of " + names[symbol]);
    }
  };
  // The first lookup of a symbol makes it ready.
  for (size_t i = 0; i < count; i++)
    fixture.session.address(dylib, names[i]);
  double one = undisturbed(1, operations, work), two = undisturbed(2, operations, work);
  figures.add("one", 1e9 / one);
  figures.add("two", 1e9 / two);
  figures.add("ratio", two / one);
}

// ORC 19 has no redirectable symbols for JITLink. This uses its stubs manager, like LLJIT's lazy functions.
static void swaps(Fixture &fixture, Figures &figures) {
  constexpr size_t REDIRECTS = 1'000'000;
  auto stubs = createLocalIndirectStubsManagerBuilder(fixture.session.inner().getTargetTriple())();
  Instance ends[2];
  uint64_t addresses[2];
  for (size_t i = 0; i < 2; i++) {
    fixture.instances.next(ends[i]);
    auto [tracker, address] = fixture.session.link(fixture.dylib, ends[i]);
    addresses[i] = address;
  }
  check(stubs->createStub("stub", ExecutorAddr(addresses[0]), JITSymbolFlags::Exported));
  uint64_t stub = stubs->findStub("stub", false).getAddress().getValue(), start = now();
  for (size_t i = 0; i < REDIRECTS; i++)
    check(stubs->updatePointer("stub", ExecutorAddr(addresses[i & 1])));
  figures.add("redirect", double(now() - start) / REDIRECTS);
  ends[1].check(stub);
  ResourceTrackerSP current;
  Samples samples;
  for (size_t done = 0; done < fixture.operations(); done += BATCH) {
    fixture.makeBatch();
    samples.batch([&] {
      for (const Instance &instance : fixture.batch)
        samples.one([&] {
          auto [tracker, address] = fixture.session.link(fixture.dylib, instance);
          check(stubs->updatePointer("stub", ExecutorAddr(address)));
          if (current)
            check(current->remove());
          current = std::move(tracker);
        });
    });
    fixture.batch[BATCH - 1].check(stub);
  }
  figures.add("swap", samples);
}

static void dylibs(Fixture &fixture, Figures &figures) {
  Samples samples;
  for (size_t done = 0; done < fixture.operations();) {
    fixture.makeBatch();
    samples.batch([&] {
      for (const Instance &instance : fixture.batch)
        samples.one([&] {
          JITDylib &dylib = fixture.session.dylib("dylib " + std::to_string(done++));
          fixture.session.add(dylib.getDefaultResourceTracker(), instance);
          instance.check(fixture.session.address(dylib, instance.entry));
          check(fixture.session.inner().removeJITDylib(dylib));
        });
    });
  }
  figures.add("dylib", samples);
  // Too short to be timed one by one: take the median of windows.
  constexpr size_t WINDOWS = 101, TRACKERS = 500;
  std::vector<double> windows(WINDOWS);
  for (double &window : windows) {
    uint64_t start = now();
    for (size_t i = 0; i < TRACKERS; i++)
      check(fixture.dylib.createResourceTracker()->remove());
    window = double(now() - start) / TRACKERS;
  }
  std::sort(windows.begin(), windows.end());
  figures.add("tracker", windows[WINDOWS / 2]);
}

// The memory manager alone: 2 KiB of code, 0.5 KiB of constants and 0.5 KiB of data are allocated, written, finalized and freed.
static void manager(Fixture &fixture, Figures &figures) {
  auto memory = Session::memory(fixture.session.best());
  static const char bytes[2048] = {char(0xc3)};
  const std::pair<AllocGroup, size_t> parts[] = {
      {MemProt::Read | MemProt::Exec, 2048}, {MemProt::Read, 512}, {MemProt::Read | MemProt::Write, 512}};
  Samples samples;
  for (size_t done = 0; done < fixture.operations(); done += BATCH)
    samples.batch([&] {
      for (size_t i = 0; i < BATCH; i++)
        samples.one([&] {
          jitlink::SimpleSegmentAlloc::SegmentMap segments;
          for (auto [group, size] : parts)
            segments[group] = {size, Align(16)};
          auto allocation = check(jitlink::SimpleSegmentAlloc::Create(*memory, nullptr, std::move(segments)));
          for (auto [group, size] : parts)
            memcpy(allocation.getSegInfo(group).WorkingMem.data(), bytes, size);
          check(memory->deallocate(check(allocation.finalize())));
        });
    });
  figures.add("manager", samples);
}

static void resident(Fixture &fixture, Figures &figures) {
  size_t count = fixture.arguments.number("live");
  Resident before = Resident::measure();
  std::vector<ResourceTrackerSP> live = fixture.fill(count);
  Resident full = Resident::measure();
  figures.add("bytes", (full.bytes - before.bytes) / count);
  figures.add("rss", (full.rss - before.rss) / count);
  figures.add("mappings", (full.mappings - before.mappings) / count);
  for (ResourceTrackerSP &tracker : live)
    check(tracker->remove());
  live = {};
  fixture.session.inner().getSymbolStringPool()->clearDeadEntries();
  figures.add("left", Resident::measure().bytes - before.bytes);
}

// The first link of this process, and later links of the same object into warm memory.
static void large(const Arguments &arguments, Figures &figures) {
  Instances instances(arguments.text("objects"));
  Session session(arguments, instances);
  JITDylib &dylib = session.dylib("main");
  Instance object;
  instances.next(object);
  Samples first, again;
  for (size_t i = 0; i <= arguments.number("operations"); i++) {
    std::pair<ResourceTrackerSP, uint64_t> linked;
    Samples &samples = i == 0 ? first : again;
    samples.batch([&] { samples.one([&] { linked = session.link(dylib, object); }); });
    object.check(linked.second);
    check(linked.first->remove());
  }
  figures.add("first", first);
  figures.add("again", again);
}

// Sessions from their start over a first call to their end: one, and as many as asked for.
static void start(const Arguments &arguments, Figures &figures) {
  Instances instances(arguments.text("objects"));
  Instance object;
  instances.get(0, object);
  auto run = [&] {
    Session session(arguments, instances);
    session.linkChecked(session.dylib("main"), object);
    return session.creationTime();
  };
  figures.add("new", double(run()));
  if (arguments.number("operations") == 0)
    return;
  Samples later, whole;
  for (size_t i = 0; i < arguments.number("operations"); i++)
    whole.batch([&] { whole.one([&] { later.add(run()); }); });
  figures.add("later", later);
  figures.add("session", whole);
}

int main(int count, char **words) {
  Arguments arguments(count, words);
  const std::map<std::string, void (*)(Fixture &, Figures &)> modes = {
      {"link", link},     {"cold", coldLink},  {"remove", removal}, {"churn", churn},   {"threads", threads},
      {"lookup", lookup}, {"swap", swaps},     {"dylib", dylibs}, {"resident", resident},
      {"growth", growth}, {"manager", manager}};
  if (arguments.mode == "version")
    return puts(LLVM_VERSION_STRING), 0;
  auto mode = modes.find(arguments.mode);
  if (mode == modes.end() && arguments.mode != "large" && arguments.mode != "start")
    die("the mode must be link, cold, remove, churn, threads, lookup, swap, dylib, resident, growth, manager, large or start");
  // Not when memory is measured: the padding would count as memory of the modules.
  bool isOfMemory = arguments.mode == "resident" || arguments.mode == "growth";
  if (arguments.text("set-up") == "best" && !isOfMemory) {
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 4 << 20);
  }
  Figures figures;
  if (arguments.mode == "large") {
    large(arguments, figures);
  } else if (arguments.mode == "start") {
    start(arguments, figures);
  } else {
    Fixture fixture(arguments);
    mode->second(fixture, figures);
  }
  figures.print();
}
