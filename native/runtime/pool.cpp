#include "pool.hpp"

#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace stapes {

namespace {

// A worker spins this often for its next job before it sleeps: about 0.1 ms, longer than the pause
// between two ops of a plan and shorter than anything a user would notice.
constexpr int kSpins = 3000;
constexpr int kSpinsBeforeYield = 1000;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

}  // namespace

Pool::Pool(int threads) : owner_process_(getpid()) {
    workers_.reserve(size_t(threads));
    try {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
    } catch (...) {  // the system gives no more threads; those that run must end first
        stop();
        throw;
    }
}

Pool::~Pool() {
    if (getpid() != owner_process_) {
        // The threads stayed behind in the parent of a fork: they can be neither joined nor detached.
        (void)new std::vector<std::thread>(std::move(workers_));
        (void)wake_.release();
        return;
    }
    stop();
}

void Pool::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
        epoch_.fetch_add(1);
    }
    wake_->notify_all();
    for (auto& worker : workers_) worker.join();
}

void Pool::take_items(int thread) {
    for (;;) {
        size_t first = next_.fetch_add(grain_, std::memory_order_relaxed);
        if (first >= items_) return;
        size_t last = first + grain_ < items_ ? first + grain_ : items_;
        call_(context_, first, last, thread);
    }
}

void Pool::run(Call call, const void* context, size_t items, size_t grain) {
    call_ = call;
    context_ = context;
    items_ = items;
    grain_ = grain;
    next_.store(0, std::memory_order_relaxed);
    if (getpid() != owner_process_) return take_items(0);
    busy_.store(int(workers_.size()), std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
        std::lock_guard<std::mutex> lock(mutex_);
        wake_->notify_all();
    }
    take_items(0);
    for (int spins = 0; busy_.load(std::memory_order_acquire) > 0; ++spins) {
        pause();
        if (spins > kSpinsBeforeYield) std::this_thread::yield();
    }
}

void Pool::wait_for_job(uint64_t seen) {
    for (int spins = 0; spins < kSpins; ++spins) {
        if (epoch_.load(std::memory_order_acquire) != seen) return;
        pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    wake_->wait(lock, [&] { return epoch_.load(std::memory_order_seq_cst) != seen; });
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Pool::work(int thread) {
    for (uint64_t seen = 0;;) {
        wait_for_job(seen);
        seen = epoch_.load(std::memory_order_acquire);
        if (stop_.load()) return;
        take_items(thread);
        busy_.fetch_sub(1, std::memory_order_release);
    }
}

}  // namespace stapes
