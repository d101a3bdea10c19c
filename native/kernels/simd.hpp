// A vector of 8 or 16 lanes, spelled for each instruction set in a file of simd/.
//
// The kernels are written once against this header and compiled once per instruction set, each in a
// namespace of its own (STAPES_ISA). No standard-library templates are used in those files: an
// inline function instantiated under -mavx2 could be the copy that the linker keeps for everyone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(STAPES_AVX512)
#include <immintrin.h>
#define STAPES_ISA avx512
#define STAPES_BYTE_DOTS 1
#elif defined(STAPES_AVX2)
#include <immintrin.h>
#define STAPES_ISA avx2
#else
#include <cmath>
#define STAPES_ISA portable
#endif

#define STAPES_INLINE static inline __attribute__((always_inline))

namespace stapes::STAPES_ISA {

STAPES_INLINE float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

STAPES_INLINE uint32_t float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

STAPES_INLINE float bf16_to_float(uint16_t half) { return bits_to_float(uint32_t(half) << 16); }

// Round to nearest even; a NaN keeps its sign and becomes quiet.
STAPES_INLINE uint16_t float_to_bf16(float value) {
    uint32_t bits = float_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40);
    return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#if defined(STAPES_AVX512)
#include "simd/avx512.hpp"
#elif defined(STAPES_AVX2)
#include "simd/avx2.hpp"
#else
#include "simd/portable.hpp"
#endif

// Lanes added in one fixed order.
STAPES_INLINE float vf_sum(VF a) {
    float x[kLanes];
    vf_store(x, a);
    for (int half = kLanes / 2; half; half /= 2)
        for (int i = 0; i < half; ++i) x[i] += x[i + half];
    return x[0];
}

STAPES_INLINE float vf_hmax(VF a) {
    float x[kLanes];
    vf_store(x, a);
    float best = x[0];
    for (int i = 1; i < kLanes; ++i) best = x[i] > best ? x[i] : best;
    return best;
}

// e^x; 0 below -87.3, clamped above 88.3. Range reduction by ln 2 in two parts and a polynomial of
// degree 6 (minimax coefficients of Cephes' expf). Relative error under 2 ulp.
STAPES_INLINE VF vf_exp(VF x) {
    const VF low = vf_set1(-87.33654f);
    VF clamped = vf_max(low, vf_min(vf_set1(88.3f), x));  // in this order a NaN stays a NaN
    VF n = vf_round(vf_mul(clamped, vf_set1(1.44269504f)));
    VF r = vf_fma(n, vf_set1(-0.693359375f), clamped);
    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    VF p = vf_set1(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set1(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
    VF value = vf_add(vf_fma(p, vf_mul(r, r), r), vf_set1(1.0f));
    return vf_select_lt(x, low, vf_zero(), vf_mul(value, vf_pow2(n)));
}

// erf(x): odd rational approximation on [-4, 4] (the coefficients are Eigen's generic_fast_erf_float,
// after Cephes), absolute error under 1e-6.
STAPES_INLINE VF vf_erf(VF x) {
    VF c = vf_max(vf_set1(-4.0f), vf_min(vf_set1(4.0f), x));  // in this order a NaN stays a NaN
    VF s = vf_mul(c, c);
    VF p = vf_set1(-2.72614225801306e-10f);
    p = vf_fma(p, s, vf_set1(2.77068142495902e-08f));
    p = vf_fma(p, s, vf_set1(-2.10102402082508e-06f));
    p = vf_fma(p, s, vf_set1(-5.69250639462346e-05f));
    p = vf_fma(p, s, vf_set1(-7.34990630326855e-04f));
    p = vf_fma(p, s, vf_set1(-2.95459980854025e-03f));
    p = vf_fma(p, s, vf_set1(-1.60960333262415e-02f));
    VF q = vf_set1(-1.45660718464996e-05f);
    q = vf_fma(q, s, vf_set1(-2.13374055278905e-04f));
    q = vf_fma(q, s, vf_set1(-1.68282697438203e-03f));
    q = vf_fma(q, s, vf_set1(-7.37332916720468e-03f));
    q = vf_fma(q, s, vf_set1(-1.42647390514189e-02f));
    return vf_div(vf_mul(c, p), q);
}

}  // namespace stapes::STAPES_ISA
