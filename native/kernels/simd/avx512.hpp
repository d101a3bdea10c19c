// The vector in AVX-512 (F, BW, DQ, VL, VNNI): sixteen lanes, and dot products of bytes. Included by
// simd.hpp.

constexpr int kLanes = 16;
constexpr int kPanelRows = 12;  // 12 integer and 12 float sums in 32 registers
constexpr int kFewTiles = 2, kFewRows = 6;  // as many sums, and every broadcast serves two products

struct VF { __m512 v; };
struct VI { __m512i v; };

STAPES_INLINE float f16_to_float(uint16_t half) { return _cvtsh_ss(half); }
STAPES_INLINE uint16_t float_to_f16(float value) {
    return uint16_t(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
}

STAPES_INLINE VF vf_zero() { return {_mm512_setzero_ps()}; }
STAPES_INLINE VF vf_set1(float x) { return {_mm512_set1_ps(x)}; }
STAPES_INLINE VF vf_load(const float* p) { return {_mm512_loadu_ps(p)}; }
STAPES_INLINE void vf_store(float* p, VF a) { _mm512_storeu_ps(p, a.v); }
STAPES_INLINE VF vf_add(VF a, VF b) { return {_mm512_add_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_sub(VF a, VF b) { return {_mm512_sub_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_mul(VF a, VF b) { return {_mm512_mul_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_div(VF a, VF b) { return {_mm512_div_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_max(VF a, VF b) { return {_mm512_max_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_min(VF a, VF b) { return {_mm512_min_ps(a.v, b.v)}; }
STAPES_INLINE VF vf_fma(VF a, VF b, VF c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
STAPES_INLINE VF vf_abs(VF a) { return {_mm512_abs_ps(a.v)}; }
STAPES_INLINE VF vf_round(VF a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
STAPES_INLINE VF vf_floor(VF a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}
STAPES_INLINE VF vf_select_lt(VF a, VF b, VF yes, VF no) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
STAPES_INLINE VF vf_nan(VF a) {
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), _mm512_set1_ps(1.0f))};
}
STAPES_INLINE VF vf_pow2(VF n) {
    __m512i i = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(i, 23))};
}
STAPES_INLINE VF vf_load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
STAPES_INLINE VF vf_load_bf16(const uint16_t* p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
STAPES_INLINE void vf_store_i16(int16_t* p, VF a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(a.v)));
}
STAPES_INLINE void vf_store_i8(int8_t* p, VF a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v)));
}
STAPES_INLINE VI vi_zero() { return {_mm512_setzero_si512()}; }
// 64 int8 seen as 32 pairs: the first, or the second, of every pair as int16.
STAPES_INLINE VI vi_even_i8(VI a) { return {_mm512_srai_epi16(_mm512_slli_epi16(a.v, 8), 8)}; }
STAPES_INLINE VI vi_odd_i8(VI a) { return {_mm512_srai_epi16(a.v, 8)}; }
// The same 32-bit word (a pair of int16) in every lane.
STAPES_INLINE VI vi_set1_pair(const int16_t* p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return {_mm512_set1_epi32(word)};
}
STAPES_INLINE VI vi_madd(VI acc, VI a, VI b) { return {_mm512_dpwssd_epi32(acc.v, a.v, b.v)}; }
STAPES_INLINE VI vi_set1(int32_t x) { return {_mm512_set1_epi32(x)}; }
STAPES_INLINE VI vi_load(const void* p) { return {_mm512_loadu_si512(p)}; }
STAPES_INLINE void vi_store(void* p, VI a) { _mm512_storeu_si512(p, a.v); }
STAPES_INLINE VI vi_low_nibbles(VI a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
STAPES_INLINE VI vi_high_nibbles(VI a) { return vi_low_nibbles({_mm512_srli_epi16(a.v, 4)}); }
// acc + four products a lane: unsigned bytes of a by a quad of signed bytes, the same for all lanes.
STAPES_INLINE VI vi_dot_quad(VI acc, VI a, const int8_t* quad) {
    int32_t word;
    memcpy(&word, quad, sizeof word);
    return {_mm512_dpbusd_epi32(acc.v, a.v, _mm512_set1_epi32(word))};
}
// Sixteen floats, already whole numbers of at most 8 bits and a sign: their magnitudes as bytes, and a
// byte for each sign, 255 for minus. Returns acc plus the magnitudes of the negative ones.
STAPES_INLINE VI vf_store_signs(uint8_t* magnitudes, uint8_t* signs, VF a, VI acc) {
    __m512i whole = _mm512_cvtps_epi32(a.v);
    __mmask16 negative = _mm512_movepi32_mask(whole);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(magnitudes),
                     _mm512_cvtepi32_epi8(_mm512_abs_epi32(whole)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(signs), _mm_movm_epi8(negative));
    return {_mm512_mask_sub_epi32(acc.v, negative, acc.v, whole)};
}
STAPES_INLINE int32_t vi_sum(VI a) { return _mm512_reduce_add_epi32(a.v); }
// Four neighbouring bytes, the same in every lane.
STAPES_INLINE VI vi_set1_bytes(const uint8_t* p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return {_mm512_set1_epi32(word)};
}
STAPES_INLINE VI vi_xor(VI a, VI b) { return {_mm512_xor_si512(a.v, b.v)}; }
// acc + four products a lane: unsigned bytes of a by signed bytes of b.
STAPES_INLINE VI vi_dot(VI acc, VI a, VI b) { return {_mm512_dpbusd_epi32(acc.v, a.v, b.v)}; }
STAPES_INLINE VF vi_to_float(VI a) { return {_mm512_cvtepi32_ps(a.v)}; }
STAPES_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// Into the second level of cache, for what is used much later.
STAPES_INLINE void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
STAPES_INLINE void pin(VI& a) { asm volatile("" : "+v"(a.v)); }
STAPES_INLINE void pin(VF& a) { asm volatile("" : "+v"(a.v)); }
