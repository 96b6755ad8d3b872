// The program tapeformer_bench: tapeformer with the benchmarks of single parts, which are for developers.
#include "tests/bench/benchmarks.h"
#include "train/cli/run.h"

int main(int argc, char** argv) {
  using namespace tapeformer;
  for (const auto& make :
       {make_sgemm_benchmark, make_lsh_attention_benchmark, make_reversible_benchmark, make_ctc_benchmark,
        make_filterbank_benchmark, make_speech_stream_benchmark, make_text_benchmark})
    register_benchmark(make());
  return cli::run(argc, argv);
}
