// What linear and conv2d share: quantised rows of activations, and a layer's job.
#pragma once

#include "ops.hpp"

namespace stapes {

constexpr size_t kRowPadding = 32;  // keeps rows off one another's cache sets

inline bool is_quantized(Format format) { return format == Format::q8 || format == Format::q4; }

// Where a block of rows lies after quantising.
struct Quantized {
    int peak;
    size_t stride, blocks;
    float* scales;
    int32_t* sums;
    int16_t* words;
    int8_t* bytes;
    static size_t size(size_t rows, size_t in) {
        size_t blocks = ceil_div(in, kBlock);
        return rows * ((blocks * kBlock + kRowPadding) * 3 + blocks * 8) + 64;
    }
    Quantized(int highest, void* memory, size_t rows, size_t in)
        : peak(highest), stride(round_up(in, kBlock) + kRowPadding), blocks(ceil_div(in, kBlock)) {
        scales = static_cast<float*>(memory);
        sums = reinterpret_cast<int32_t*>(scales + rows * blocks);
        words = reinterpret_cast<int16_t*>(sums + rows * blocks);
        bytes = reinterpret_cast<int8_t*>(words + rows * stride);
    }
    void row(const Kernels& kernels, const float* x, size_t n, size_t r) const {
        kernels.quantize_row(peak, x, n, {bytes + r * stride, words + r * stride,
                                          sums + r * blocks, scales + r * blocks});
    }
    QuantizedRows rows() const { return {bytes, words, sums, scales, stride, blocks}; }
};

inline LinearJob job_for(const Matrix& w, const Op& op, const Frame& frame, size_t activation) {
    LinearJob job{};
    job.format = w.format;
    job.weights = w.data;
    job.peak = w.peak;
    job.in = w.in, job.out = w.out;
    job.bias = op.vectors.empty() ? nullptr : frame.plan.vector(op, 0).data;
    job.activation = Activation(op.ints[activation]);
    job.y_stride = op.output.stride;
    return job;
}

// The same job for rows [row, row + rows) alone.
inline LinearJob rows_of(LinearJob job, size_t row, size_t rows) {
    job.rows = rows;
    if (job.x) job.x += row * job.x_stride;
    job.y += row * job.y_stride;
    if (!is_quantized(job.format)) return job;
    job.xq.bytes += row * job.xq.stride, job.xq.words += row * job.xq.stride;
    job.xq.sums += row * job.xq.block_stride, job.xq.scales += row * job.xq.block_stride;
    return job;
}

inline void check_epilogue(const Plan& plan, const Op& op, size_t activation) {
    need(op, plan.matrix(op, 0).out == op.output.width, "the matrix does not give this width");
    need(op, op.ints[activation] >= 0 && op.ints[activation] <= 2, "no such activation");
    if (!op.vectors.empty()) need_vector(plan, op, 0, op.output.width);
}

}  // namespace stapes
