// Ops that work on one row at a time.
#include "ops.hpp"

#include <cstring>

namespace stapes {

namespace {

constexpr size_t kRowWork = 1 << 14;  // elements worth handing to another thread

// body(row) for all rows of `view`, on all threads.
template <class Body>
void each_row(const Frame& frame, const View& view, const Body& body) {
    size_t grain = std::max<size_t>(1, kRowWork / view.width);
    frame.engine.pool().parallel(frame.rows(view), grain, [&](size_t first, size_t last, int) {
        for (size_t r = first; r < last; ++r) body(r);
    });
}

void check_index_run(const Op& op, const Frame& frame, const View& index, size_t limit) {
    const int32_t* ids = frame.ints(index);
    for (size_t r = 0; r < frame.rows(index); ++r)
        if (ids[r] < 0 || size_t(ids[r]) >= limit)
            throw std::out_of_range(op.kind + ": index " + std::to_string(ids[r]) + " of row " +
                                    std::to_string(r) + " is outside 0.." +
                                    std::to_string(limit - 1));
}

// embed: ids [dim] i32, matrix [vocab, width] -> [dim, width]
void check_embed(const Plan& plan, const Op& op) {
    need_ints(plan, op, 0);
    need_same_rows(plan, op, op.inputs[0], op.output);
    need(op, plan.matrix(op, 0).in == op.output.width, "the table's width is not the output's");
}
void check_run_embed(const Op& op, const Frame& frame) {
    check_index_run(op, frame, op.inputs[0], frame.plan.matrix(op, 0).out);
}
void run_embed(const Op& op, const Frame& frame) {
    const Matrix& table = frame.plan.matrix(op, 0);
    const int32_t* ids = frame.ints(op.inputs[0]);
    each_row(frame, op.output, [&](size_t r) {
        frame.engine.kernels().unpack_row(table.format, table.data, table.in, size_t(ids[r]),
                                          frame.row_out(op.output, r));
    });
}

// set_rows: x [a, width], values [b, width], index [b] i32 -> x with rows index[i] = values[i]
void check_set_rows(const Plan& plan, const Op& op) {
    need_ints(plan, op, 2);
    need_same_rows(plan, op, op.inputs[0], op.output);
    need_same_rows(plan, op, op.inputs[1], op.inputs[2]);
    need_widths(op, {op.inputs[0].width, op.inputs[1].width}, op.output.width);
}
void check_run_set_rows(const Op& op, const Frame& frame) {
    check_index_run(op, frame, op.inputs[2], frame.rows(op.output));
}
void run_set_rows(const Op& op, const Frame& frame) {
    size_t bytes = op.output.width * sizeof(float);
    for (size_t r = 0; r < frame.rows(op.output); ++r)
        std::memcpy(frame.row_out(op.output, r), frame.row(op.inputs[0], r), bytes);
    const int32_t* index = frame.ints(op.inputs[2]);
    for (size_t r = 0; r < frame.rows(op.inputs[1]); ++r)
        std::memcpy(frame.row_out(op.output, size_t(index[r])), frame.row(op.inputs[1], r), bytes);
}

// take_rows: x [a, width], index [b] i32 -> [b, width]
void check_take_rows(const Plan& plan, const Op& op) {
    need_ints(plan, op, 1);
    need_same_rows(plan, op, op.inputs[1], op.output);
    need_widths(op, {op.inputs[0].width}, op.output.width);
}
void check_run_take_rows(const Op& op, const Frame& frame) {
    check_index_run(op, frame, op.inputs[1], frame.rows(op.inputs[0]));
}
void run_take_rows(const Op& op, const Frame& frame) {
    const int32_t* index = frame.ints(op.inputs[1]);
    for (size_t r = 0; r < frame.rows(op.output); ++r)
        std::memcpy(frame.row_out(op.output, r), frame.row(op.inputs[0], size_t(index[r])),
                    op.output.width * sizeof(float));
}

// rms_norm: x, weight [width / groups]; each of `groups` slices of a row on its own
void check_rms_norm(const Plan& plan, const Op& op) {
    need_same_rows(plan, op, op.inputs[0], op.output);
    need_widths(op, {op.inputs[0].width}, op.output.width);
    need(op, op.ints[0] > 0 && op.output.width % size_t(op.ints[0]) == 0, "groups do not divide");
    need_vector(plan, op, 0, op.output.width / size_t(op.ints[0]));
}
void run_rms_norm(const Op& op, const Frame& frame) {
    const Vector& weight = frame.plan.vector(op, 0);
    each_row(frame, op.output, [&](size_t r) {
        for (size_t start = 0; start < op.output.width; start += weight.size)
            frame.engine.kernels().rms_norm(frame.row(op.inputs[0], r) + start, weight.size,
                                            weight.data, float(op.floats[0]),
                                            frame.row_out(op.output, r) + start);
    });
}

// adaptive_rms_norm: x [a, width], scales [b, width], index [a] i32: row r by scales[index[r]]
void check_adaptive_rms_norm(const Plan& plan, const Op& op) {
    need_ints(plan, op, 2);
    need_same_rows(plan, op, op.inputs[0], op.output);
    need_same_rows(plan, op, op.inputs[2], op.output);
    need_widths(op, {op.inputs[0].width, op.inputs[1].width}, op.output.width);
}
void check_run_adaptive_rms_norm(const Op& op, const Frame& frame) {
    check_index_run(op, frame, op.inputs[2], frame.rows(op.inputs[1]));
}
void run_adaptive_rms_norm(const Op& op, const Frame& frame) {
    const int32_t* index = frame.ints(op.inputs[2]);
    each_row(frame, op.output, [&](size_t r) {
        frame.engine.kernels().rms_norm(frame.row(op.inputs[0], r), op.output.width,
                                        frame.row(op.inputs[1], size_t(index[r])),
                                        float(op.floats[0]), frame.row_out(op.output, r));
    });
}

// layer_norm: x, weight [width], bias [width]
void check_layer_norm(const Plan& plan, const Op& op) {
    need_same_rows(plan, op, op.inputs[0], op.output);
    need_widths(op, {op.inputs[0].width}, op.output.width);
    need_vector(plan, op, 0, op.output.width);
    need_vector(plan, op, 1, op.output.width);
}
void run_layer_norm(const Op& op, const Frame& frame) {
    each_row(frame, op.output, [&](size_t r) {
        frame.engine.kernels().layer_norm(frame.row(op.inputs[0], r), op.output.width,
                                          frame.plan.vector(op, 0).data,
                                          frame.plan.vector(op, 1).data, float(op.floats[0]),
                                          frame.row_out(op.output, r));
    });
}

// rope_angles: positions [dim] i32, inv_freq [d / 2] -> [dim, d]: cosines, then sines
void check_rope_angles(const Plan& plan, const Op& op) {
    need_ints(plan, op, 0);
    need_same_rows(plan, op, op.inputs[0], op.output);
    need(op, op.output.width % 2 == 0, "the width is odd");
    need_vector(plan, op, 0, op.output.width / 2);
}
void run_rope_angles(const Op& op, const Frame& frame) {
    const Vector& inv_freq = frame.plan.vector(op, 0);
    const int32_t* positions = frame.ints(op.inputs[0]);
    each_row(frame, op.output, [&](size_t r) {
        float* y = frame.row_out(op.output, r);
        for (size_t i = 0; i < inv_freq.size; ++i) {
            double angle = float(positions[r]) * inv_freq.data[i];  // the product is rounded to f32
            y[i] = float(std::cos(angle));
            y[inv_freq.size + i] = float(std::sin(angle));
        }
    });
}

// rope: x [rows, heads * d], angles [rows, d]
void check_rope(const Plan& plan, const Op& op) {
    need_same_rows(plan, op, op.inputs[0], op.output);
    need_same_rows(plan, op, op.inputs[1], op.output);
    need_widths(op, {op.inputs[0].width}, op.output.width);
    need(op, op.inputs[1].width % 2 == 0 && op.output.width % op.inputs[1].width == 0,
         "the width is no multiple of an even head_dim");
}
void run_rope(const Op& op, const Frame& frame) {
    size_t head_dim = op.inputs[1].width;
    each_row(frame, op.output, [&](size_t r) {
        for (size_t start = 0; start < op.output.width; start += head_dim)
            frame.engine.kernels().rope(frame.row(op.inputs[0], r) + start,
                                        frame.row(op.inputs[1], r), head_dim,
                                        frame.row_out(op.output, r) + start);
    });
}

// silu_gate: gate, up -> silu(gate) * up
// add: a, b -> a + b
void check_pair(const Plan& plan, const Op& op) {
    need_same_rows(plan, op, op.inputs[0], op.output);
    need_same_rows(plan, op, op.inputs[1], op.output);
    need_widths(op, {op.inputs[0].width, op.inputs[1].width}, op.output.width);
}
void run_silu_gate(const Op& op, const Frame& frame) {
    each_row(frame, op.output, [&](size_t r) {
        frame.engine.kernels().silu_gate(frame.row(op.inputs[0], r), frame.row(op.inputs[1], r),
                                         op.output.width, frame.row_out(op.output, r));
    });
}
void run_add(const Op& op, const Frame& frame) {
    each_row(frame, op.output, [&](size_t r) {
        frame.engine.kernels().add(frame.row(op.inputs[0], r), frame.row(op.inputs[1], r),
                                   op.output.width, frame.row_out(op.output, r));
    });
}

// add_periodic: x, table [period * width] -> x[r] + table[r % period]
void check_add_periodic(const Plan& plan, const Op& op) {
    need_same_rows(plan, op, op.inputs[0], op.output);
    need_widths(op, {op.inputs[0].width}, op.output.width);
    need(op, op.vectors.size() == 1 && plan.vector(op, 0).size % op.output.width == 0 &&
                 plan.vector(op, 0).size > 0,
         "the table is no whole number of rows");
}
void run_add_periodic(const Op& op, const Frame& frame) {
    const Vector& table = frame.plan.vector(op, 0);
    size_t period = table.size / op.output.width;
    each_row(frame, op.output, [&](size_t r) {
        frame.engine.kernels().add(frame.row(op.inputs[0], r),
                                   table.data + r % period * op.output.width, op.output.width,
                                   frame.row_out(op.output, r));
    });
}

// gelu: x -> x / 2 * (1 + erf(x / sqrt 2))
void check_gelu(const Plan& plan, const Op& op) {
    need_same_rows(plan, op, op.inputs[0], op.output);
    need_widths(op, {op.inputs[0].width}, op.output.width);
}
void run_gelu(const Op& op, const Frame& frame) {
    each_row(frame, op.output, [&](size_t r) {
        frame.engine.kernels().gelu(frame.row(op.inputs[0], r), op.output.width,
                                    frame.row_out(op.output, r));
    });
}

// argmax: x -> [rows] i32, the first maximum; -1 when a row has a NaN
void check_argmax(const Plan& plan, const Op& op) {
    need_same_rows(plan, op, op.inputs[0], op.output);
    need(op, op.output.width == 1 && op.output.stride == 1, "the output is one number a row");
    need(op, plan.buffer(op.output).element == Element::i32, "the output is not i32");
}
void run_argmax(const Op& op, const Frame& frame) {
    int32_t* y = const_cast<int32_t*>(frame.ints(op.output));
    each_row(frame, op.inputs[0], [&](size_t r) {
        y[r] = frame.engine.kernels().argmax(frame.row(op.inputs[0], r), op.inputs[0].width);
    });
}

}  // namespace

//                                   inputs, indices, matrices, vectors, ints, floats
const OpKind kEmbed{"embed", 1, 1, 1, 0, 0, 0, check_embed, check_run_embed, run_embed};
const OpKind kSetRows{"set_rows", 3, 1, 0, 0, 0, 0, check_set_rows, check_run_set_rows, run_set_rows};
const OpKind kTakeRows{"take_rows", 2, 1, 0, 0, 0, 0, check_take_rows, check_run_take_rows,
                       run_take_rows};
const OpKind kRmsNorm{"rms_norm", 1, 0, 0, 1, 1, 1, check_rms_norm, nullptr, run_rms_norm};
const OpKind kAdaptiveRmsNorm{"adaptive_rms_norm", 3, 1, 0, 0, 0, 1, check_adaptive_rms_norm,
                              check_run_adaptive_rms_norm, run_adaptive_rms_norm};
const OpKind kLayerNorm{"layer_norm", 1, 0, 0, 2, 0, 1, check_layer_norm, nullptr, run_layer_norm};
const OpKind kRopeAngles{"rope_angles", 1, 1, 0, 1, 0, 0, check_rope_angles, nullptr, run_rope_angles};
const OpKind kRope{"rope", 2, 0, 0, 0, 0, 0, check_rope, nullptr, run_rope};
const OpKind kSiluGate{"silu_gate", 2, 0, 0, 0, 0, 0, check_pair, nullptr, run_silu_gate};
const OpKind kAdd{"add", 2, 0, 0, 0, 0, 0, check_pair, nullptr, run_add};
const OpKind kAddPeriodic{"add_periodic", 1, 0, 0, 1, 0, 0, check_add_periodic, nullptr,
                          run_add_periodic};
const OpKind kGelu{"gelu", 1, 0, 0, 0, 0, 0, check_gelu, nullptr, run_gelu};
const OpKind kArgmax{"argmax", 1, 0, 0, 0, 0, 0, check_argmax, nullptr, run_argmax,
                     Element::i32};

}  // namespace stapes
