// Threads of one object run code of another, throw in it, and race for a function-local static.
#include "threads.h"
#include <cstdio>
#include <cstring>

static std::atomic<int> ran{0};

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    Work work;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back([&work] {
        once();
        worker(work);
        ran++;
    });
    for (int i = 1; i <= 1000; i++) {
        std::lock_guard<std::mutex> lock(work.mutex);
        work.items.push(i);
        work.ready.notify_one();
    }
    {
        std::lock_guard<std::mutex> lock(work.mutex);
        work.closed = true;
    }
    work.ready.notify_all();
    for (auto &thread : threads) thread.join();
    std::printf("sum %ld, caught %d, ran %d, once %d\n", work.sum, work.caught, ran.load(), once());
    if (!std::strcmp(mode, "detach")) {
        std::thread([] { for (volatile long i = 0;; i++); }).detach();
        return 5;
    }
    if (!std::strcmp(mode, "uncaught")) {
        std::fflush(stdout);
        std::thread([] { throw std::runtime_error("in a thread"); }).join();
    }
    return 4;
}
