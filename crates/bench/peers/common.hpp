// Parts of every peer's program: the clock, the instances that the driver writes, and the figures that it reads back.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <emmintrin.h>
#include <fcntl.h>
#include <map>
#include <malloc.h>
#include <random>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

[[noreturn]] inline void die(const std::string &message) {
  fprintf(stderr, "%s\n", message.c_str());
  _exit(1);
}

inline uint64_t clockOf(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return uint64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}
inline uint64_t now() { return clockOf(CLOCK_MONOTONIC); }
inline uint64_t cpuTime() { return clockOf(CLOCK_PROCESS_CPUTIME_ID); }

// Options `--name value`, and one word for the mode.
class Arguments {
  std::map<std::string, std::string> values;

public:
  std::string mode;

  Arguments(int count, char **words) {
    for (int i = 1; i < count; i++) {
      std::string word = words[i];
      if (word.rfind("--", 0) != 0)
        mode = word;
      else if (i + 1 < count)
        values[word.substr(2)] = words[++i];
      else
        die(word + " needs a value");
    }
  }
  std::string text(const std::string &name) const {
    auto found = values.find(name);
    if (found == values.end())
      die("--" + name + " is needed");
    return found->second;
  }
  size_t number(const std::string &name) const { return strtoull(text(name).c_str(), nullptr, 10); }
};

// Times of one operation, done many times. CPU time is read once per batch, because reading it is a system call.
class Samples {
  std::vector<uint64_t> times;
  uint64_t cpu = 0;

public:
  template <class F> void one(F &&operation) {
    uint64_t start = now();
    operation();
    times.push_back(now() - start);
  }
  void add(uint64_t time) { times.push_back(time); }
  template <class F> void batch(F &&operations) {
    uint64_t start = cpuTime();
    operations();
    cpu += cpuTime() - start;
  }
  // Operations per second of CPU time: the rate of an undisturbed thread.
  double perSecond() const { return times.size() * 1e9 / cpu; }
  std::string json() {
    std::sort(times.begin(), times.end());
    size_t count = times.size();
    uint64_t sum = 0;
    for (uint64_t time : times)
      sum += time;
    std::string p99 = count < 200 ? "null" : std::to_string(times[count * 990 / 1000]);
    std::string p999 = count < 1000 ? "null" : std::to_string(times[count * 999 / 1000]);
    return "{\"value\":" + std::to_string(times[count / 2]) + ",\"mean\":" + std::to_string(double(sum) / count) +
           ",\"p99\":" + p99 + ",\"p999\":" + p999 + ",\"cpu\":" + std::to_string(double(cpu) / count) + "}";
  }
};

// One line of JSON for the driver.
class Figures {
  std::string text;

public:
  void addJson(const std::string &name, const std::string &json) {
    text += (text.empty() ? "" : ",") + ("\"" + name + "\":" + json);
  }
  void add(const std::string &name, Samples &samples) { addJson(name, samples.json()); }
  void add(const std::string &name, double value) {
    char json[60];
    snprintf(json, sizeof json, "{\"value\":%.3f}", value);
    addJson(name, json);
  }
  void print() const {
    printf("{%s}\n", text.c_str());
    fflush(stdout);
  }
};

// An object in its own buffer, as a code generator would return it.
struct Instance {
  std::vector<char> bytes;
  std::string entry;
  uint64_t argument = 0, expected = 0;

  // Takes the bytes out of the processor's caches.
  void evict() const {
    for (size_t at = 0; at < bytes.size(); at += 64)
      _mm_clflush(&bytes[at]);
    _mm_mfence();
  }
  void check(uint64_t address) const {
    if (reinterpret_cast<uint64_t (*)(uint64_t)>(address)(argument) != expected)
      die("wrong result of " + entry);
  }
};

// The driver's file. An entry has the sizes of the object and of its name (4 bytes each), argument and expected result (8 bytes
// each), the name and the object. The first entry is the library that the others call. All pages are touched at the start, so
// that they do not count as memory of the linked modules.
class Instances {
  struct Header {
    uint32_t size, nameSize;
    uint64_t argument, expected;
  };
  std::vector<const char *> places;
  size_t at = 0;

  Header header(size_t index) const {
    Header header;
    memcpy(&header, places[index], sizeof header);
    return header;
  }

public:
  explicit Instances(const std::string &path) {
    int file = open(path.c_str(), O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0)
      die("cannot read " + path);
    void *mapped = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (mapped == MAP_FAILED)
      die("cannot map " + path);
    close(file);
    const char *place = static_cast<const char *>(mapped), *end = place + status.st_size;
    while (place < end) {
      places.push_back(place);
      Header header = this->header(places.size() - 1);
      place += sizeof header + header.nameSize + header.size;
    }
  }
  std::string_view library() const { return {places[0] + sizeof(Header), header(0).size}; }

  void get(size_t index, Instance &into) const {
    // Starts again after the last instance; the earlier owner of the name is removed by then.
    size_t place = 1 + index % (places.size() - 1);
    Header header = this->header(place);
    const char *name = places[place] + sizeof header, *bytes = name + header.nameSize;
    into.entry.assign(name, header.nameSize);
    into.bytes.assign(bytes, bytes + header.size);
    into.argument = header.argument;
    into.expected = header.expected;
  }
  void next(Instance &into) { get(at++, into); }
};

// The number of instances prepared before each batch, outside the clock; so few that they are still in the cache when linked.
constexpr size_t BATCH = 32;

struct Resident {
  double bytes, rss, mappings;
  // Measured after the allocator has returned its free memory.
  static Resident measure() {
    malloc_trim(0);
    Resident found{};
    size_t pss = 0, rss = 0;
    char line[512];
    // Rss counts a page twice that is mapped twice.
    if (FILE *file = fopen("/proc/self/smaps_rollup", "r")) {
      while (fgets(line, sizeof line, file)) {
        sscanf(line, "Pss: %zu", &pss);
        sscanf(line, "Rss: %zu", &rss);
      }
      fclose(file);
    }
    found.bytes = pss * 1024.0;
    found.rss = rss * 1024.0;
    if (FILE *file = fopen("/proc/self/maps", "r")) {
      for (int c; (c = getc_unlocked(file)) != EOF;)
        found.mappings += c == '\n';
      fclose(file);
    }
    return found;
  }
};
