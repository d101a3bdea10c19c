// linear and conv2d: matrices in packed tiles.
#include "ops.hpp"

#include <cstring>

namespace stapes {

namespace {

constexpr size_t kGrainBytes = 64 * 1024;  // packed weights handed to a thread at a time, few rows
constexpr size_t kPadding = 32;            // keeps rows off one another's cache sets
constexpr size_t kConvRows = 96;           // output pixels unfolded at a time

bool is_quantized(Format format) { return format == Format::q8 || format == Format::q4; }

// Where a block of rows lies after quantising.
struct Quantized {
    size_t stride, blocks;
    float* scales;
    int32_t* sums;
    int16_t* words;
    int8_t* bytes;
    static size_t size(size_t rows, size_t in) {
        size_t blocks = ceil_div(in, kBlock);
        return rows * ((blocks * kBlock + kPadding) * 3 + blocks * 8) + 64;
    }
    Quantized(void* memory, size_t rows, size_t in)
        : stride(round_up(in, kBlock) + kPadding), blocks(ceil_div(in, kBlock)) {
        scales = static_cast<float*>(memory);
        sums = reinterpret_cast<int32_t*>(scales + rows * blocks);
        words = reinterpret_cast<int16_t*>(sums + rows * blocks);
        bytes = reinterpret_cast<int8_t*>(words + rows * stride);
    }
    void row(const Kernels& kernels, const float* x, size_t n, size_t r) const {
        kernels.quantize_row(x, n, {bytes + r * stride, words + r * stride, sums + r * blocks,
                                    scales + r * blocks});
    }
    QuantizedRows rows() const { return {bytes, words, sums, scales, stride, blocks}; }
};

LinearJob job_for(const Matrix& w, const Op& op, const Frame& frame, size_t activation) {
    LinearJob job{};
    job.format = w.format;
    job.weights = w.data;
    job.in = w.in, job.out = w.out;
    job.bias = op.vectors.empty() ? nullptr : frame.plan.vector(op, 0).data;
    job.activation = Activation(op.ints[activation]);
    job.y_stride = op.output.stride;
    return job;
}

void check_epilogue(const Plan& plan, const Op& op, size_t activation) {
    need(op, plan.matrix(op, 0).out == op.output.width, "the matrix does not give this width");
    need(op, op.ints[activation] >= 0 && op.ints[activation] <= 1, "no such activation");
    if (!op.vectors.empty()) need_vector(plan, op, 0, op.output.width);
}

// linear: x [rows, in], matrix [out, in], bias [out] or none; ints: activation
void check_linear(const Plan& plan, const Op& op) {
    need_same_rows(plan, op, op.inputs[0], op.output);
    need(op, plan.matrix(op, 0).in == op.inputs[0].width, "the matrix does not fit the input");
    check_epilogue(plan, op, 0);
}

void run_linear(const Op& op, const Frame& frame) {
    const Matrix& w = frame.plan.matrix(op, 0);
    const View& x = op.inputs[0];
    Engine& engine = frame.engine;
    const size_t rows = frame.rows(x);
    if (!rows) return;
    LinearJob job = job_for(w, op, frame, 0);
    job.rows = rows;
    job.x = frame.row(x, 0), job.x_stride = x.stride;
    job.y = frame.row_out(op.output, 0);
    if (is_quantized(w.format)) {
        Quantized quantized(engine.activations(Quantized::size(rows, w.in)), rows, w.in);
        engine.pool().parallel(rows, 8, [&](size_t first, size_t last, int) {
            for (size_t r = first; r < last; ++r)
                quantized.row(engine.kernels(), frame.row(x, r), w.in, r);
        });
        job.xq = quantized.rows();
    }
    auto scratch = engine.per_thread(kLinearScratchFloats * sizeof(float));
    size_t bytes = tile_bytes(w.format, w.in);
    size_t grain = rows > 8 ? 1 : std::max<size_t>(1, kGrainBytes / bytes);
    engine.pool().parallel(ceil_div(w.out, kTile), grain, [&](size_t first, size_t last, int t) {
        engine.kernels().linear_tiles(job, first, last, scratch.of(t));
    });
}

// conv2d: x is `per_row` pixels [height * width] of `channels`; matrix [out, 9 * channels] with its
// inputs in the order (row, column, channel); 3x3, stride 2, padding 1.
// ints: activation, height, width
struct Conv {
    size_t height, width, channels, out_height, out_width;
    Conv(const Op& op)
        : height(size_t(op.ints[1])),
          width(size_t(op.ints[2])),
          channels(op.inputs[0].width),
          out_height((height + 1) / 2),
          out_width((width + 1) / 2) {}

    // The 9 * channels inputs of output pixel `pixel` of the image whose first pixel is given.
    void unfold(const float* image, size_t stride, size_t pixel, float* patch) const {
        size_t bytes = channels * sizeof(float);
        for (size_t i = 0; i < 3; ++i) {
            for (size_t j = 0; j < 3; ++j, patch += channels) {
                size_t y = pixel / out_width * 2 + i, x = pixel % out_width * 2 + j;  // from -1
                if (!y || !x || y > height || x > width)
                    std::memset(patch, 0, bytes);
                else
                    std::memcpy(patch, image + ((y - 1) * width + x - 1) * stride, bytes);
            }
        }
    }
};

void check_conv2d(const Plan& plan, const Op& op) {
    need(op, op.ints[1] > 0 && op.ints[2] > 0 && op.ints[1] < 65536 && op.ints[2] < 65536,
         "no such image");
    Conv conv(op);
    need(op, plan.buffer(op.inputs[0]).dim == plan.buffer(op.output).dim &&
                 op.inputs[0].per_row == conv.height * conv.width &&
                 op.output.per_row == conv.out_height * conv.out_width,
         "operands differ in their rows");
    need(op, plan.matrix(op, 0).in == 9 * conv.channels, "the matrix does not fit the input");
    check_epilogue(plan, op, 0);
}

void run_conv2d(const Op& op, const Frame& frame) {
    const Matrix& w = frame.plan.matrix(op, 0);
    const View& x = op.inputs[0];
    const Conv conv(op);
    const Kernels& kernels = frame.engine.kernels();
    const size_t rows = frame.rows(op.output), pixels = op.output.per_row;
    size_t patch_bytes = round_up(kConvRows * w.in * sizeof(float), 64);
    size_t linear_bytes = round_up(kLinearScratchFloats * sizeof(float), 64);
    auto scratch = frame.engine.per_thread(patch_bytes + linear_bytes +
                                           Quantized::size(kConvRows, w.in));
    frame.engine.pool().parallel(rows, kConvRows, [&](size_t first, size_t last, int t) {
        float* patches = scratch.of(t);
        float* linear = patches + patch_bytes / sizeof(float);
        Quantized quantized(linear + linear_bytes / sizeof(float), kConvRows, w.in);
        LinearJob job = job_for(w, op, frame, 0);
        job.rows = last - first;
        job.x = patches, job.x_stride = w.in;
        job.y = frame.row_out(op.output, first);
        for (size_t r = first; r < last; ++r) {
            float* patch = patches + (r - first) * w.in;
            conv.unfold(frame.row(x, r / pixels * x.per_row), x.stride, r % pixels, patch);
            if (is_quantized(w.format)) quantized.row(kernels, patch, w.in, r - first);
        }
        job.xq = quantized.rows();
        kernels.linear_tiles(job, 0, ceil_div(w.out, kTile), linear);
    });
}

}  // namespace

const OpKind kLinear{"linear", 1, 0, 1, 1, 1, 0, check_linear, nullptr, run_linear};
const OpKind kConv2d{"conv2d", 1, 0, 1, 1, 3, 0, check_conv2d, nullptr, run_conv2d};

}  // namespace stapes
