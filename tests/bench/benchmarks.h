// Benchmarks of single parts. To add one, write a file with a function that returns the Benchmark, declare
// the function here, and call it in main.cpp.
#pragma once

#include "train/bench/bench.h"

namespace tapeformer {

Benchmark make_ctc_benchmark();
Benchmark make_filterbank_benchmark();
Benchmark make_lsh_attention_benchmark();
Benchmark make_reversible_benchmark();
Benchmark make_sgemm_benchmark();
Benchmark make_speech_stream_benchmark();
Benchmark make_text_benchmark();

}  // namespace tapeformer
