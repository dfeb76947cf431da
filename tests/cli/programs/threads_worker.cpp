// The code that the threads run.
#include "threads.h"

static int check(int item) {
    if (item % 100 == 0) throw std::out_of_range("hundred");
    return item;
}

void worker(Work &work) {
    for (;;) {
        int item;
        {
            std::unique_lock<std::mutex> lock(work.mutex);
            work.ready.wait(lock, [&work] { return work.closed || !work.items.empty(); });
            if (work.items.empty()) return;
            item = work.items.front();
            work.items.pop();
        }
        long value = 0;
        int caught = 0;
        try {
            value = check(item);
        } catch (const std::logic_error &) {
            caught = 1;
        }
        std::lock_guard<std::mutex> lock(work.mutex);
        work.sum += value;
        work.caught += caught;
    }
}

static int make_once() {
    static std::atomic<int> calls{0};
    return ++calls;
}

int once() {
    static int value = make_once();
    return value;
}
