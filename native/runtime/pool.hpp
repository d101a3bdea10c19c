// A pool of threads that run one job at a time, handing out its items as they are asked for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace stapes {

class Pool {
public:
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return int(workers_.size()) + 1; }

    // Calls body(first, last, thread) for consecutive ranges of at most `grain` items that cover
    // [0, items), on all threads, and returns when all are done. `body` must not throw. Not to be
    // called from two threads at once, nor from within a body.
    template <class Body>
    void parallel(size_t items, size_t grain, const Body& body) {
        if (items <= grain || workers_.empty()) {
            for (size_t i = 0; i < items; i += grain)
                body(i, i + grain < items ? i + grain : items, 0);
            return;
        }
        run([](const void* context, size_t first, size_t last, int thread) {
                (*static_cast<const Body*>(context))(first, last, thread);
            },
            &body, items, grain);
    }

private:
    using Call = void (*)(const void*, size_t, size_t, int);
    void run(Call call, const void* context, size_t items, size_t grain);
    void work(int thread);
    void take_items(int thread);
    void wait_for_job(uint64_t seen);
    void stop();

    std::vector<std::thread> workers_;
    Call call_ = nullptr;
    const void* context_ = nullptr;
    size_t items_ = 0, grain_ = 1;
    alignas(64) std::atomic<size_t> next_{0};
    alignas(64) std::atomic<uint64_t> epoch_{0};
    alignas(64) std::atomic<int> busy_{0};
    std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    // On the heap: in the child of a fork it still counts the parent's sleepers, and destroying it
    // would wait for them.
    std::unique_ptr<std::condition_variable> wake_ = std::make_unique<std::condition_variable>();
    long owner_process_;
};

}  // namespace stapes
