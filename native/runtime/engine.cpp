#include "engine.hpp"

#include <unistd.h>

#include <stdexcept>

namespace stapes {

namespace {

using Table = const Kernels& (*)();

// Every instruction set this build has kernels for, best first, and whether the processor has it.
struct InstructionSet {
    const char* name;
    bool available;
    Table kernels;
};

std::vector<InstructionSet> all_sets() {
    std::vector<InstructionSet> sets;
#if defined(STAPES_HAVE_X86)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("f16c");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512vnni");
    sets.push_back({"avx512", avx512, avx512_kernels});
    sets.push_back({"avx2", avx2, avx2_kernels});
#endif
    sets.push_back({"portable", true, portable_kernels});
    return sets;
}

const Kernels& kernels_named(const std::string& name) {
    for (const InstructionSet& set : all_sets())
        if (set.available && (name == "auto" || name == set.name)) return set.kernels();
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
    for (const InstructionSet& set : all_sets())
        if (set.available) names.push_back(set.name);
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
