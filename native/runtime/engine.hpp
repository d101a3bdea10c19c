// What runs plans: a pool of threads, the kernels of one instruction set, and working memory.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "../kernels/kernels.hpp"
#include "memory.hpp"
#include "pool.hpp"

namespace stapes {

// Names of the instruction sets that this processor can run, best first.
std::vector<std::string> instruction_sets();

class Engine {
public:
    // instruction_set: one of instruction_sets(), or "auto" for the best.
    Engine(int threads, const std::string& instruction_set);

    Pool& pool() { return pool_; }
    const Kernels& kernels() const { return kernels_; }

    // One run at a time: held by whoever uses the pool or the working memory. In the child of a
    // fork that happened in the middle of a run the lock stays taken for ever: runtime_error.
    std::unique_lock<std::mutex> lock();

    // Working memory of at least `bytes`, its content arbitrary; grows and never shrinks.
    uint8_t* workspace(size_t bytes) { return grown(workspace_, bytes); }      // a plan's buffers
    uint8_t* activations(size_t bytes) { return grown(activations_, bytes); }  // quantised rows
    uint8_t* partials(size_t bytes) { return grown(partials_, bytes); }        // attention's blocks
    // The same, for each thread: thread t owns [t * stride, t * stride + bytes).
    struct PerThread {
        uint8_t* base;
        size_t stride;
        float* of(int thread) const { return reinterpret_cast<float*>(base + thread * stride); }
    };
    PerThread per_thread(size_t bytes);

private:
    static uint8_t* grown(AlignedBytes& memory, size_t bytes);

    const long owner_process_;
    Pool pool_;
    const Kernels& kernels_;
    std::mutex mutex_;
    AlignedBytes workspace_, activations_, partials_, per_thread_;
};

}  // namespace stapes
