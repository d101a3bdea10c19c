// The kernels of one instruction set: the including file defines which.
#include "kernels.hpp"
#include "simd.hpp"

namespace stapes::STAPES_ISA {

#include "rowops.inl"
#include "linear.inl"
#include "attention.inl"
#include "pack.inl"

constexpr Kernels table(const char* name) {
    return {name,      linear_tiles, quantize_row, unpack_row,   pack_tile,   widen,
            rms_norm,  layer_norm,   rope,         silu_gate,    gelu,        add,
            depthwise, argmax,       store_key,    store_value,  attend,      attend_block,
            attend_join, stream_sum};
}

}  // namespace stapes::STAPES_ISA
