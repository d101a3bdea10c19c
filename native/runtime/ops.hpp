// The op kinds, and the checks that several of them share.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "plan.hpp"

namespace stapes {

extern const OpKind kEmbed, kSetRows, kTakeRows, kRmsNorm, kAdaptiveRmsNorm, kLayerNorm, kRopeAngles,
    kRope, kSiluGate, kAdd, kAddPeriodic, kGelu, kArgmax, kLinear, kConv2d, kDepthwiseConv,
    kCachedAttention, kWindowAttention;

inline void need(const Op& op, bool condition, const char* otherwise) {
    if (!condition) throw std::invalid_argument(op.kind + ": " + otherwise);
}

inline void need_ints(const Plan& plan, const Op& op, size_t input) {
    const View& view = op.inputs[input];
    need(op, plan.buffer(view).element == Element::i32 && view.width == 1 && view.stride == 1,
         "an index input is not one i32 a row");
}

inline void need_same_rows(const Plan& plan, const Op& op, const View& a, const View& b) {
    need(op, plan.buffer(a).dim == plan.buffer(b).dim && a.per_row == b.per_row,
         "operands differ in their rows");
}

inline void need_widths(const Op& op, std::initializer_list<size_t> widths, size_t expected) {
    for (size_t width : widths) need(op, width == expected, "operands differ in their widths");
}

inline void need_vector(const Plan& plan, const Op& op, size_t index, size_t size) {
    need(op, index < op.vectors.size() && plan.vector(op, index).size == size,
         "a vector is missing or of the wrong length");
}

// Before a run, of two i32 operands from `first` on: starts[r] and ends[r] are the same for all rows of
// a window, and windows are consecutive runs of rows. out_of_range otherwise.
void check_windows(const Op& op, const Frame& frame, size_t first);

}  // namespace stapes
