// The vector in AVX2 + FMA + F16C. Included by simd.hpp.

constexpr int kLanes = 8;
constexpr bool kNibbleProducts = true;
constexpr int kPanelRows = 6;  // with 2 vectors of outputs: 12 sums in 16 registers
constexpr int kFewTiles = 1, kFewRows = 4;

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
STAPES_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// Into the second level of cache, for what is used much later.
STAPES_INLINE void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
// Keep an accumulator in its register, in this order: without this GCC computes the products of all
// rows of a register block first, and spills half of the block's sums in every step.
STAPES_INLINE void pin(VI& a) { asm volatile("" : "+x"(a.v)); }
STAPES_INLINE void pin(VF& a) { asm volatile("" : "+x"(a.v)); }
// 32 bytes: their low or high nibbles.
STAPES_INLINE VI vi_low_nibbles(VI a) { return {_mm256_and_si256(a.v, _mm256_set1_epi8(15))}; }
STAPES_INLINE VI vi_high_nibbles(VI a) {
    return vi_low_nibbles({_mm256_srli_epi16(a.v, 4)});
}
STAPES_INLINE VI vi_minus_8(VI a) { return {_mm256_sub_epi8(a.v, _mm256_set1_epi8(8))}; }
STAPES_INLINE VI vi_set1_quad(const int8_t* p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return {_mm256_set1_epi32(word)};
}
// Sixteen int16 sums of two products each, unsigned a by signed b, added without saturating care.
STAPES_INLINE VI vi_madd_nibbles(VI acc, VI a, VI b) {
    return {_mm256_add_epi16(acc.v, _mm256_maddubs_epi16(a.v, b.v))};
}
// Neighbouring int16 added up to int32, less `offset` in every lane.
STAPES_INLINE VI vi_add_pairs(VI a, int32_t offset) {
    return {_mm256_sub_epi32(_mm256_madd_epi16(a.v, _mm256_set1_epi16(1)),
                             _mm256_set1_epi32(offset))};
}
// Eight floats, already whole numbers of at most 8 bits, stored as int8.
STAPES_INLINE void vf_store_i8(int8_t* p, VF a) {
    int16_t wide[kLanes];
    vf_store_i16(wide, a);
    __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(wide));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}
