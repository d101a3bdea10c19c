// What a kernel is asked to do, and the table of kernels of one instruction set.
//
// Every kernel computes a row from that row, its sequence and the weights alone, in one fixed order
// of operations: neither the number of rows, nor the regime, nor the split over threads shows in
// the bits of the result.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stapes {

enum class Format : int { f32 = 0, bf16 = 1, q8 = 2, q4 = 3 };
enum class KvType : int { f32 = 0, f16 = 1, bf16 = 2 };
enum class Activation : int { none = 0, gelu = 1, silu = 2 };

constexpr int kTile = 16;        // outputs interleaved in one tile of packed weights
constexpr int kBlock = 32;       // inputs that share one scale in q8
constexpr int kKeyTile = 16;     // keys interleaved in one tile of the K cache
constexpr int kKeyBlock = 256;   // keys of one softmax partial, aligned to absolute positions
constexpr size_t kQ8BlockBytes = kTile * 2 + kTile * kBlock;
constexpr size_t kQ4BlockBytes = kTile * 2 + kTile * kBlock / 2;

inline size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
inline size_t round_up(size_t a, size_t b) { return ceil_div(a, b) * b; }

// Bytes of one tile of `in` inputs: f32 and bf16 are [in][16]; q8 is, per block of 32 inputs, 16 f16
// scales and then [8 quads of inputs][16 outputs][4] int8; q4 has [4 octets][16 outputs][4] bytes
// instead, input 8j + i in the low nibble of byte i of octet j, input 8j + 4 + i in the high one, each
// as its value plus 8.
inline size_t tile_bytes(Format format, size_t in) {
    switch (format) {
        case Format::f32: return in * kTile * 4;
        case Format::bf16: return in * kTile * 2;
        case Format::q4: return ceil_div(in, kBlock) * kQ4BlockBytes;
        default: return ceil_div(in, kBlock) * kQ8BlockBytes;
    }
}

// The largest whole number that an activation becomes beside quantised weights. Beside q8 it is one of
// two: with kFinePeak a block's sum of 32 products of at most 128 * 4095 is still a float without
// rounding; kCoarsePeak is what products of bytes can hold, the sign apart (linear_signs.inl). Beside
// q4 it is kBytePeak, since its products of bytes are what makes it fast.
constexpr int kFinePeak = 4095, kCoarsePeak = 255, kBytePeak = 127;

// A row of activations as whole numbers in blocks of 32, x = scale * value, of at most a peak: as
// int16 with each quad in the order 0 2 1 3; with kBytePeak as int8, too, and the sum of each block's
// values. Where bytes can be multiplied, kCoarsePeak instead gives the 32 magnitudes of a block as
// bytes and then a byte for each sign, 255 for minus; sums are those of the negatives' magnitudes.
struct QuantizedRow {
    int8_t* bytes;
    int16_t* words;
    int32_t* sums;
    float* scales;
};

struct QuantizedRows {
    const int8_t* bytes;
    const int16_t* words;
    const int32_t* sums;
    const float* scales;
    size_t stride, block_stride;  // from one row to the next: of bytes and words, of sums and scales
};

struct LinearJob {
    Format format;
    const uint8_t* weights;  // tiles, one after another
    size_t in, out;
    size_t rows;
    const float* x;          // [rows] at x_stride; f32 and bf16
    size_t x_stride;
    QuantizedRows xq;        // q8 and q4
    int peak;                // of these
    float* y;                // [rows] at y_stride
    size_t y_stride;
    const float* bias;       // [out] or null
    Activation activation;
};

struct AttendJob {
    KvType kv_type;
    size_t head_dim;           // of q and out
    size_t v_stride;           // elements from one key's V row to the next, >= round_up(head_dim, 16)
    size_t queries;            // query rows in this job
    const float* const* q;     // [queries] -> [head_dim]
    float* const* out;         // [queries] -> [head_dim]
    const int32_t* visible;    // [queries]: keys 0..visible-1 are attended, at least 1
    float scale;
    size_t blocks;             // key blocks given
    const void* const* k;      // [blocks] -> [16 key tiles][head_dim][16 keys]
    const void* const* v;      // [blocks] -> [256 keys] at v_stride
    float* scratch;            // attend_scratch_floats(queries, head_dim)
    const void* later;         // keys that the thread will probably read after this job
};

// Floats of what attention over some keys gives (attention.inl's Attended).
inline size_t attend_partial_floats(size_t queries, size_t head_dim) {
    return round_up(queries * (round_up(head_dim, kTile) + 2), kTile);
}
inline size_t attend_scratch_floats(size_t queries, size_t head_dim) {
    return queries * kKeyBlock + 2 * attend_partial_floats(queries, head_dim) +
           (kKeyTile + kKeyBlock) * round_up(head_dim, kTile);
}

// With more rows than kOneTileRows, linear_tiles is best given this many tiles, or a multiple. Up to
// there memory is the limit, which one tile at a time suits.
constexpr size_t kOneTileRows = 4;
constexpr size_t kTilesTogether = 2;
// Scratch of linear_tiles, per thread: widened weights and the running sums of a block of rows.
constexpr size_t kLinearScratchFloats = 512 * kTile + 192 * kTile + 64 * kTile + 256;

struct Kernels {
    const char* name;

    // Tiles [first, last) of a linear layer, for all rows of the job.
    void (*linear_tiles)(const LinearJob& job, size_t first, size_t last, float* scratch);
    // x[n], zero-padded to a multiple of 32, as whole numbers of at most a peak.
    void (*quantize_row)(int peak, const float* x, size_t n, const QuantizedRow& row);
    // One output row of packed weights, dequantised: an embedding look-up.
    void (*unpack_row)(Format format, const uint8_t* weights, size_t in, size_t row, float* y);
    // `outputs` <= 16 rows of a matrix, f32, into one tile. False when a value is not finite.
    bool (*pack_tile)(Format format, const float* const* rows, size_t outputs, size_t in,
                      uint8_t* tile);
    // Stored words (f32, f16 or bf16) to f32.
    void (*widen)(KvType type, const void* source, size_t n, float* y);

    void (*rms_norm)(const float* x, size_t n, const float* weight, float eps, float* y);
    void (*layer_norm)(const float* x, size_t n, const float* weight, const float* bias, float eps,
                       float* y);
    void (*rope)(const float* x, const float* cos_sin, size_t head_dim, float* y);
    void (*silu_gate)(const float* gate, const float* up, size_t n, float* y);
    void (*gelu)(const float* x, size_t n, float* y);
    void (*add)(const float* a, const float* b, size_t n, float* y);
    // bias[n] + the sum over taps t of weights[t][n] * rows[t][n]; a tap whose row is null is left out.
    void (*depthwise)(const float* const* rows, size_t taps, const float* weights, size_t n,
                      const float* bias, float* y);
    // First index of the maximum; -1 when any value is NaN.
    int32_t (*argmax)(const float* x, size_t n);

    // One key's K (interleaved at lane `key % 16` of its tile) or V row into the cache.
    void (*store_key)(KvType type, const float* x, size_t head_dim, void* tile, size_t lane);
    void (*store_value)(KvType type, const float* x, size_t head_dim, void* row);
    void (*attend)(const AttendJob& job);
    // The same in parts, for several threads: what one block gives, into attend_partial_floats();
    // then the output, from what all blocks gave, `stride` floats apart.
    void (*attend_block)(const AttendJob& job, size_t block, float* partial);
    void (*attend_join)(const AttendJob& job, float* partials, size_t stride);

    // Sum of x[n] but for a tail; for measuring the speed of memory.
    float (*stream_sum)(const float* x, size_t n);
};

const Kernels& portable_kernels();
#if defined(STAPES_HAVE_X86)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
#endif

}  // namespace stapes
