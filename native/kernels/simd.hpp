// A vector of eight lanes, in two spellings: AVX2 intrinsics, or plain arrays.
//
// The kernels are written once against this header and compiled once per instruction set, each in a
// namespace of its own (STAPES_ISA). No standard-library templates are used in those files: an
// inline function instantiated under -mavx2 could be the copy that the linker keeps for everyone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(STAPES_AVX2)
#include <immintrin.h>
#define STAPES_ISA avx2
#else
#include <cmath>
#define STAPES_ISA portable
#endif

#define STAPES_INLINE static inline __attribute__((always_inline))

namespace stapes::STAPES_ISA {

constexpr int kLanes = 8;

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

#if defined(STAPES_AVX2)

struct VF { __m256 v; };
struct VI { __m256i v; };

STAPES_INLINE float f16_to_float(uint16_t half) { return _cvtsh_ss(half); }
STAPES_INLINE uint16_t float_to_f16(float value) {
    return uint16_t(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
}

STAPES_INLINE VF vf_zero() { return {_mm256_setzero_ps()}; }
STAPES_INLINE VF vf_set1(float x) { return {_mm256_set1_ps(x)}; }
STAPES_INLINE VF vf_load(const float* p) { return {_mm256_loadu_ps(p)}; }
STAPES_INLINE void vf_store(float* p, VF a) { _mm256_storeu_ps(p, a.v); }
STAPES_INLINE VF vf_add(VF a, VF b) { return {_mm256_add_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_sub(VF a, VF b) { return {_mm256_sub_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_mul(VF a, VF b) { return {_mm256_mul_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_div(VF a, VF b) { return {_mm256_div_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_max(VF a, VF b) { return {_mm256_max_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_min(VF a, VF b) { return {_mm256_min_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_fma(VF a, VF b, VF c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
STAPES_INLINE VF vf_abs(VF a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
STAPES_INLINE VF vf_round(VF a) {
    return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
STAPES_INLINE VF vf_floor(VF a) { return {_mm256_floor_ps(a.v)}; }
// a < b ? yes : no, per lane; a NaN on either side selects `no`.
STAPES_INLINE VF vf_select_lt(VF a, VF b, VF yes, VF no) {
    return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
// 1 in the lanes that are NaN, else 0.
STAPES_INLINE VF vf_nan(VF a) {
    return {_mm256_and_ps(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q), _mm256_set1_ps(1.0f))};
}
// 2^n for whole n in [-126, 127].
STAPES_INLINE VF vf_pow2(VF n) {
    __m256i i = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(i, 23))};
}
STAPES_INLINE VF vf_load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
STAPES_INLINE VF vf_load_bf16(const uint16_t* p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}
STAPES_INLINE VI vi_zero() { return {_mm256_setzero_si256()}; }
STAPES_INLINE VI vi_load(const void* p) {
    return {_mm256_loadu_si256(static_cast<const __m256i*>(p))};
}
STAPES_INLINE void vi_store(void* p, VI a) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), a.v);
}
// 32 int8 seen as 16 pairs: the first, or the second, of every pair as int16.
STAPES_INLINE VI vi_even_i8(VI a) {
    return {_mm256_srai_epi16(_mm256_slli_epi16(a.v, 8), 8)};
}
STAPES_INLINE VI vi_odd_i8(VI a) { return {_mm256_srai_epi16(a.v, 8)}; }
// The same 32-bit word (a pair of int16) in every lane.
STAPES_INLINE VI vi_set1_pair(const int16_t* p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return {_mm256_set1_epi32(word)};
}
STAPES_INLINE VI vi_madd(VI acc, VI a, VI b) {
    return {_mm256_add_epi32(acc.v, _mm256_madd_epi16(a.v, b.v))};
}
STAPES_INLINE VF vi_to_float(VI a) { return {_mm256_cvtepi32_ps(a.v)}; }
// Eight floats, already whole numbers of at most 16 bits, stored as int16.
STAPES_INLINE void vf_store_i16(int16_t* p, VF a) {
    __m256i wide = _mm256_cvtps_epi32(a.v);
    __m128i narrow = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow);
}
// The same, each quad in the order 0 2 1 3.
STAPES_INLINE void vf_store_quads_i16(int16_t* p, VF a) {
    vf_store_i16(p, a);
    __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    narrow = _mm_shufflelo_epi16(narrow, _MM_SHUFFLE(3, 1, 2, 0));
    narrow = _mm_shufflehi_epi16(narrow, _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow);
}
STAPES_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// Keep an accumulator in its register, in this order: without this GCC computes the products of all
// rows of a register block first, and spills half of the block's sums in every step.
STAPES_INLINE void pin(VI& a) { asm volatile("" : "+x"(a.v)); }
STAPES_INLINE void pin(VF& a) { asm volatile("" : "+x"(a.v)); }

#else

struct VF { float v[kLanes]; };
struct VI { int32_t v[kLanes]; };  // also read as eight pairs of int16

STAPES_INLINE float f16_to_float(uint16_t half) {
    uint32_t sign = uint32_t(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u, mantissa = half & 1023u;
    if (exponent == 31) return bits_to_float(sign | 0x7f800000u | (mantissa << 13));
    if (exponent) return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
    float magnitude = float(mantissa) * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -magnitude : magnitude;
}

STAPES_INLINE uint16_t float_to_f16(float value) {
    uint32_t bits = float_to_bits(value);
    uint16_t sign = uint16_t((bits >> 16) & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // subnormal: let the float adder round at 2^-24
        float shifted = bits_to_float(magnitude) + 0.5f;
        return uint16_t(sign | (float_to_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
}

#define STAPES_LANES(expr) \
    VF r;                  \
    for (int i = 0; i < kLanes; ++i) r.v[i] = (expr); \
    return r

STAPES_INLINE VF vf_set1(float x) { STAPES_LANES(x); }
STAPES_INLINE VF vf_zero() { return vf_set1(0.0f); }
STAPES_INLINE VF vf_load(const float* p) { STAPES_LANES(p[i]); }
STAPES_INLINE void vf_store(float* p, VF a) { memcpy(p, a.v, sizeof a.v); }
STAPES_INLINE VF vf_add(VF a, VF b) { STAPES_LANES(a.v[i] + b.v[i]); }
STAPES_INLINE VF vf_sub(VF a, VF b) { STAPES_LANES(a.v[i] - b.v[i]); }
STAPES_INLINE VF vf_mul(VF a, VF b) { STAPES_LANES(a.v[i] * b.v[i]); }
STAPES_INLINE VF vf_div(VF a, VF b) { STAPES_LANES(a.v[i] / b.v[i]); }
STAPES_INLINE VF vf_max(VF a, VF b) { STAPES_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
STAPES_INLINE VF vf_min(VF a, VF b) { STAPES_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
STAPES_INLINE VF vf_fma(VF a, VF b, VF c) { STAPES_LANES(a.v[i] * b.v[i] + c.v[i]); }
STAPES_INLINE VF vf_abs(VF a) { STAPES_LANES(std::fabs(a.v[i])); }
STAPES_INLINE VF vf_round(VF a) { STAPES_LANES(std::nearbyint(a.v[i])); }
STAPES_INLINE VF vf_floor(VF a) { STAPES_LANES(std::floor(a.v[i])); }
STAPES_INLINE VF vf_select_lt(VF a, VF b, VF yes, VF no) {
    STAPES_LANES(a.v[i] < b.v[i] ? yes.v[i] : no.v[i]);
}
STAPES_INLINE VF vf_nan(VF a) { STAPES_LANES(a.v[i] == a.v[i] ? 0.0f : 1.0f); }
STAPES_INLINE VF vf_pow2(VF n) {
    STAPES_LANES(n.v[i] == n.v[i] ? bits_to_float(uint32_t(int32_t(n.v[i]) + 127) << 23) : n.v[i]);
}
STAPES_INLINE VF vf_load_f16(const uint16_t* p) { STAPES_LANES(f16_to_float(p[i])); }
STAPES_INLINE VF vf_load_bf16(const uint16_t* p) { STAPES_LANES(bf16_to_float(p[i])); }
STAPES_INLINE VI vi_zero() {
    VI r;
    memset(r.v, 0, sizeof r.v);
    return r;
}
STAPES_INLINE VI vi_load(const void* p) {
    VI r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}
STAPES_INLINE void vi_store(void* p, VI a) { memcpy(p, a.v, sizeof a.v); }
STAPES_INLINE VI vi_every_second_i8(VI a, int first) {
    int8_t bytes[4 * kLanes];
    int16_t wide[2 * kLanes];
    memcpy(bytes, a.v, sizeof bytes);
    for (int i = 0; i < 2 * kLanes; ++i) wide[i] = bytes[2 * i + first];
    return vi_load(wide);
}
STAPES_INLINE VI vi_even_i8(VI a) { return vi_every_second_i8(a, 0); }
STAPES_INLINE VI vi_odd_i8(VI a) { return vi_every_second_i8(a, 1); }
STAPES_INLINE VI vi_set1_pair(const int16_t* p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    VI r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = word;
    return r;
}
STAPES_INLINE VI vi_madd(VI acc, VI a, VI b) {
    int16_t x[2 * kLanes], y[2 * kLanes];
    memcpy(x, a.v, sizeof x);
    memcpy(y, b.v, sizeof y);
    for (int i = 0; i < kLanes; ++i) acc.v[i] += x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1];
    return acc;
}
STAPES_INLINE VF vi_to_float(VI a) { STAPES_LANES(float(a.v[i])); }
STAPES_INLINE void vf_store_i16(int16_t* p, VF a) {
    for (int i = 0; i < kLanes; ++i) p[i] = a.v[i] == a.v[i] ? int16_t(a.v[i]) : int16_t(0);
}
STAPES_INLINE void vf_store_quads_i16(int16_t* p, VF a) {
    int16_t plain[kLanes];
    vf_store_i16(plain, a);
    for (int i = 0; i < kLanes; i += 4) {
        p[i] = plain[i], p[i + 1] = plain[i + 2], p[i + 2] = plain[i + 1], p[i + 3] = plain[i + 3];
    }
}
STAPES_INLINE void prefetch(const void*) {}
STAPES_INLINE void pin(VI&) {}
STAPES_INLINE void pin(VF&) {}

#undef STAPES_LANES
#endif

// Lanes added in one fixed order, whatever the instruction set.
STAPES_INLINE float vf_sum(VF a) {
    float x[kLanes];
    vf_store(x, a);
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
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
