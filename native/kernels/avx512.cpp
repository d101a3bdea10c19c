// AVX-512 with VNNI. Compiled with those flags, and called only where the processor has them.
#define STAPES_AVX512
#include "kernels.inl"

const stapes::Kernels& stapes::avx512_kernels() {
    static constexpr Kernels kernels = avx512::table("avx512");
    return kernels;
}
