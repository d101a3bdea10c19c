// The table of op kinds.
#include "ops.hpp"

namespace stapes {

const OpKind* find_op(const std::string& name) {
    static const OpKind* const kinds[] = {
        &kEmbed,      &kSetRows, &kTakeRows, &kRmsNorm,     &kAdaptiveRmsNorm, &kLayerNorm,
        &kRopeAngles, &kRope,    &kSiluGate, &kAdd,         &kAddPeriodic,     &kGelu,
        &kArgmax,     &kLinear,  &kConv2d,   &kDepthwiseConv, &kCachedAttention,
        &kWindowAttention};
    for (const OpKind* kind : kinds)
        if (name == kind->name) return kind;
    return nullptr;
}

}  // namespace stapes
