// The vector as a plain array. Included by simd.hpp.

constexpr int kLanes = 8;
constexpr bool kNibbleProducts = false;
constexpr int kPanelRows = 6;
constexpr int kFewTiles = 1, kFewRows = 4;

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
STAPES_INLINE void prefetch(const void*) {}
STAPES_INLINE void prefetch_far(const void*) {}
STAPES_INLINE void pin(VI&) {}
STAPES_INLINE void pin(VF&) {}
STAPES_INLINE VI vi_low_nibbles(VI a) {
    for (int i = 0; i < kLanes; ++i) a.v[i] &= 0x0f0f0f0f;
    return a;
}
STAPES_INLINE VI vi_high_nibbles(VI a) {
    for (int i = 0; i < kLanes; ++i) a.v[i] = int32_t(uint32_t(a.v[i]) >> 4);
    return vi_low_nibbles(a);
}
STAPES_INLINE VI vi_minus_8(VI a) {
    int8_t bytes[4 * kLanes];
    memcpy(bytes, a.v, sizeof bytes);
    for (int i = 0; i < 4 * kLanes; ++i) bytes[i] = int8_t(bytes[i] - 8);
    return vi_load(bytes);
}
STAPES_INLINE void vf_store_i8(int8_t* p, VF a) {
    for (int i = 0; i < kLanes; ++i) p[i] = a.v[i] == a.v[i] ? int8_t(a.v[i]) : int8_t(0);
}

#undef STAPES_LANES
