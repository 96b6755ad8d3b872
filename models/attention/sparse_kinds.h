// Attention kinds in which a query attends to only some of the keys.
#pragma once

namespace tapeformer {

struct AttentionKind;  // models/attention/attention.h

// Return the built-in kinds of sparse attention.
AttentionKind axial_column_attention_kind();
AttentionKind axial_row_attention_kind();
AttentionKind big_bird_attention_kind();
AttentionKind etc_attention_kind();
AttentionKind image_attention_kind();
AttentionKind longformer_attention_kind();
AttentionKind routing_attention_kind();
AttentionKind sinkhorn_attention_kind();
AttentionKind sparse_attention_kind();

}  // namespace tapeformer
