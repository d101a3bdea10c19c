// AVX2 + FMA + F16C. Compiled with those flags, and called only where the processor has them.
#define STAPES_AVX2
#include "kernels.inl"

const stapes::Kernels& stapes::avx2_kernels() {
    static constexpr Kernels kernels = avx2::table("avx2");
    return kernels;
}
