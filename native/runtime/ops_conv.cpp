// conv2d: unfolding, and a matrix in packed tiles. depthwise_conv: each channel on its own.
#include <cstring>
#include <optional>

#include "linear_job.hpp"

namespace stapes {

namespace {

constexpr size_t kConvRows = 96;  // output pixels unfolded at a time

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

    // What the nine pixels around output pixel `pixel` hold, `count` values each, `stride` apart in
    // the image; zeros outside of it.
    template <class T>
    void unfold(const T* image, size_t stride, size_t count, size_t pixel, T* patch) const {
        for (size_t i = 0; i < 3; ++i) {
            for (size_t j = 0; j < 3; ++j, patch += count) {
                size_t y = pixel / out_width * 2 + i, x = pixel % out_width * 2 + j;  // from -1
                if (!y || !x || y > height || x > width)
                    std::memset(patch, 0, count * sizeof(T));
                else
                    std::memcpy(patch, image + ((y - 1) * width + x - 1) * stride,
                                count * sizeof(T));
            }
        }
    }

    // The same for pixels that are quantised already: whole blocks of channels keep their scales.
    void unfold(const Quantized& image, size_t first, size_t pixel, const Quantized& patches,
                size_t r) const {
        const size_t n = image.blocks, from = first * image.stride, block = first * n;
        unfold(image.scales + block, n, n, pixel, patches.scales + r * patches.blocks);
        unfold(image.words + from, image.stride, channels, pixel,
               patches.words + r * patches.stride);
        if (image.peak == kFinePeak) return;
        unfold(image.sums + block, n, n, pixel, patches.sums + r * patches.blocks);
        if (image.peak == kCoarsePeak) return;
        unfold(image.bytes + from, image.stride, channels, pixel,
               patches.bytes + r * patches.stride);
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

// All pixels of x quantised, each on its own: nine output pixels at most read one. Empty when a block
// of 32 inputs would span two pixels, and when the format takes f32 activations.
std::optional<Quantized> quantize_pixels(const Op& op, const Frame& frame, const Conv& conv) {
    const View& x = op.inputs[0];
    Engine& engine = frame.engine;
    const Matrix& w = frame.plan.matrix(op, 0);
    if (!is_quantized(w.format) || conv.channels % kBlock) return {};
    const size_t rows = frame.rows(x);
    Quantized pixels(w.peak, engine.activations(Quantized::size(rows, conv.channels)), rows,
                     conv.channels);
    engine.pool().parallel(rows, 64, [&](size_t first, size_t last, int) {
        for (size_t r = first; r < last; ++r)
            pixels.row(engine.kernels(), frame.row(x, r), conv.channels, r);
    });
    return pixels;
}

void run_conv2d(const Op& op, const Frame& frame) {
    const Matrix& w = frame.plan.matrix(op, 0);
    const View& x = op.inputs[0];
    const Conv conv(op);
    const Kernels& kernels = frame.engine.kernels();
    const size_t pixels = op.output.per_row;
    const std::optional<Quantized> image = quantize_pixels(op, frame, conv);
    size_t patch_bytes = round_up(kConvRows * w.in * sizeof(float), 64);
    size_t linear_bytes = round_up(kLinearScratchFloats * sizeof(float), 64);
    auto scratch = frame.engine.per_thread(patch_bytes + linear_bytes +
                                           Quantized::size(kConvRows, w.in));
    frame.engine.pool().parallel(frame.rows(op.output), kConvRows, [&](size_t first, size_t last,
                                                                       int t) {
        float* patches = scratch.of(t);
        float* linear = patches + patch_bytes / sizeof(float);
        Quantized quantized(w.peak, linear + linear_bytes / sizeof(float), kConvRows, w.in);
        LinearJob job = job_for(w, op, frame, 0);
        job.rows = last - first;
        job.x = patches, job.x_stride = w.in;
        job.y = frame.row_out(op.output, first);
        for (size_t r = first; r < last; ++r) {
            const size_t origin = r / pixels * x.per_row;
            float* patch = patches + (r - first) * w.in;
            if (image) {
                conv.unfold(*image, origin, r % pixels, quantized, r - first);
                continue;
            }
            conv.unfold(frame.row(x, origin), x.stride, conv.channels, r % pixels, patch);
            if (is_quantized(w.format)) quantized.row(kernels, patch, w.in, r - first);
        }
        job.xq = quantized.rows();
        kernels.linear_tiles(job, 0, ceil_div(w.out, kTile), linear);
    });
}

// depthwise_conv: x [rows, width], starts i32, ends i32; weight [taps * width], bias [width]. Rows are
// times; what lies outside of a row's window starts[r] .. ends[r] - 1 counts as zeros.
constexpr size_t kMostTaps = 64;
constexpr size_t kConvGrain = 16;  // rows handed to a thread: neighbours read the same rows

void check_depthwise_conv(const Plan& plan, const Op& op) {
    for (const View& view : op.inputs) need_same_rows(plan, op, view, op.output);
    need_widths(op, {op.inputs[0].width}, op.output.width);
    need_ints(plan, op, 1);
    need_ints(plan, op, 2);
    need(op, op.vectors.size() == 2, "a vector is missing or of the wrong length");
    const size_t taps = plan.vector(op, 0).size / op.output.width;
    need(op, taps % 2 == 1 && taps <= kMostTaps, "the number of taps is not odd, or above 63");
    need_vector(plan, op, 0, taps * op.output.width);
    need_vector(plan, op, 1, op.output.width);
}

void check_run_depthwise_conv(const Op& op, const Frame& frame) { check_windows(op, frame, 1); }

void run_depthwise_conv(const Op& op, const Frame& frame) {
    const Vector &weight = frame.plan.vector(op, 0), &bias = frame.plan.vector(op, 1);
    const int32_t *start = frame.ints(op.inputs[1]), *end = frame.ints(op.inputs[2]);
    const size_t width = op.output.width, taps = weight.size / width;
    frame.engine.pool().parallel(frame.rows(op.output), kConvGrain, [&](size_t first, size_t last,
                                                                        int) {
        const float* rows[kMostTaps];
        for (size_t r = first; r < last; ++r) {
            for (size_t t = 0; t < taps; ++t) {
                const size_t at = r + t, half = taps / 2;  // `half` rows too far
                const bool inside = at >= half + size_t(start[r]) && at < half + size_t(end[r]);
                rows[t] = inside ? frame.row(op.inputs[0], at - half) : nullptr;
            }
            frame.engine.kernels().depthwise(rows, taps, weight.data, width, bias.data,
                                             frame.row_out(op.output, r));
        }
    });
}

}  // namespace

const OpKind kDepthwiseConv{"depthwise_conv", 3, 2, 0, 2, 0, 0, check_depthwise_conv,
                            check_run_depthwise_conv, run_depthwise_conv};
const OpKind kConv2d{"conv2d", 1, 0, 1, 1, 3, 0, check_conv2d, nullptr, run_conv2d};

}  // namespace stapes
