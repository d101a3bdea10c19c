// The baseline: plain C++, always correct, on any processor.
#include "kernels.inl"

const stapes::Kernels& stapes::portable_kernels() {
    static constexpr Kernels kernels = portable::table("portable");
    return kernels;
}
