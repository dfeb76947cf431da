#include <atomic>
#include <condition_variable>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <thread>
#include <vector>
struct Work {
    std::mutex mutex;
    std::condition_variable ready;
    std::queue<int> items;
    bool closed = false;
    long sum = 0;
    int caught = 0;
};
void worker(Work &work);
int once();
