// Attention kinds in which a query attends to only some of the keys.
#pragma once

namespace tapeformer {

struct AttentionKind;  // models/attention/attention.h

// Return the built-in kinds of sparse attention.
AttentionKind make_axial_column_attention_kind();
AttentionKind make_axial_row_attention_kind();
AttentionKind make_big_bird_attention_kind();
AttentionKind make_etc_attention_kind();
AttentionKind make_image_attention_kind();
AttentionKind make_longformer_attention_kind();
AttentionKind make_routing_attention_kind();
AttentionKind make_sinkhorn_attention_kind();
AttentionKind make_sparse_attention_kind();

}  // namespace tapeformer
