#include "engine.hpp"

#include <unistd.h>

#include <stdexcept>

namespace stapes {

namespace {

bool has_avx2() {
#if defined(STAPES_HAVE_AVX2)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
#else
    return false;
#endif
}

const Kernels& kernels_named(const std::string& name) {
    for (const std::string& known : instruction_sets()) {
        if (name != "auto" && name != known) continue;
#if defined(STAPES_HAVE_AVX2)
        if (known == "avx2") return avx2_kernels();
#endif
        return portable_kernels();
    }
    throw std::invalid_argument("instruction set " + name + " is not available on this processor");
}

int checked_threads(int threads) {
    if (threads < 1 || threads > 1024)
        throw std::invalid_argument("threads must lie in 1..1024, not " + std::to_string(threads));
    return threads;
}

}  // namespace

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    if (has_avx2()) names.push_back("avx2");
    names.push_back("portable");
    return names;
}

Engine::Engine(int threads, const std::string& instruction_set)
    : owner_process_(getpid()), pool_(checked_threads(threads)), kernels_(kernels_named(instruction_set)) {}

std::unique_lock<std::mutex> Engine::lock() {
    if (getpid() == owner_process_) return std::unique_lock<std::mutex>(mutex_);
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock) throw std::runtime_error("Engine: busy since before the fork; make a new one");
    return lock;
}

uint8_t* Engine::grown(AlignedBytes& memory, size_t bytes) {
    if (memory.size() < bytes) {
        memory = AlignedBytes();
        memory = AlignedBytes(bytes);
    }
    return memory.data();
}

Engine::PerThread Engine::per_thread(size_t bytes) {
    size_t stride = round_up(bytes, 64) + 64;
    return {grown(per_thread_, stride * size_t(pool_.threads())), stride};
}

}  // namespace stapes
