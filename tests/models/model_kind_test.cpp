#include "models/model_kind.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "models/autoregressive_model.h"
#include "models/speech/model.h"

using namespace tapeformer;

namespace {

AttentionPattern attention_of(const std::string& kind) {
  return {{kind, find_attention_kind(kind).default_options()}};
}

}  // namespace

TEST_CASE("the options of a model type are read into the options of the model") {
  OptionValues values(find_model_kind("sequence").options);
  values.set("layers", int64_t{3});
  values.set("norm", std::string("pre"));
  values.set("positions", std::string("rotary"));
  values.set("z_loss", 0.5);
  values.set("attention_dropout", 0.25);
  const auto softmax = read_model_options<AutoregressiveModelOptions>(values, attention_of("softmax"));
  CHECK(softmax.encoder.layers == 3);
  CHECK(softmax.encoder.pre_norm);
  CHECK(softmax.encoder.rotary);
  CHECK(softmax.encoder.dropout == 0.1);
  CHECK(softmax.encoder.attention_dropout == 0.25);
  CHECK(softmax.position_kind == PositionKind::none);
  CHECK(softmax.training_loss_options.z_loss == 0.5);
  // Linear attention has no weights that could be dropped.
  const auto linear = read_model_options<AutoregressiveModelOptions>(values, attention_of("linear"));
  CHECK(linear.encoder.attention_dropout == 0);
}

TEST_CASE("an LSTM uses only the layers and the dropout of the encoder options") {
  const std::vector<OptionSpec>& specs = find_model_kind("speech").options;
  OptionValues values(specs);
  values.set("encoder", std::string("lstm"));
  for (const OptionSpec& spec : find_model_kind("classification").options)
    for (const OptionSpec& own : specs)
      if (own.name == spec.name)
        CHECK(is_option_used(own, specs, values) == (own.name == "layers" || own.name == "dropout"));
  values.set("layers", int64_t{2});
  CHECK(read_model_options<SpeechModelOptions>(values, attention_of("linear")).encoder.layers == 2);
}

TEST_CASE("a contradiction between the options of a model names the option of its type") {
  const ModelKind& kind = find_model_kind("image");
  OptionValues values(kind.options);
  CHECK(kind.find_problems(values, attention_of("linear")).empty());
  values.set("reversible", true);
  const auto problems = kind.find_problems(values, attention_of("linear"));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].option == "norm");
  CHECK_THROWS_WITH_AS(find_model_kind("sequense"),
                       "unknown model type \"sequense\" (known: image, sequence, classification, set, "
                       "speech, translation); did you mean \"sequence\"?",
                       ConfigError);
}
