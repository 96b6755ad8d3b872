#include "train/pretrained/gguf_rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/errors.h"
#include "models/encoder/encoder_layer.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

constexpr const char *kDivisors = "rope_freqs.weight", *kScaling = "rope_scaling", *kType = "rope_type",
                     *kLength = "original_max_position_embeddings";
constexpr double kTurn = 2 * std::numbers::pi;
constexpr double kTolerance = 1e-5;  // of divisors in float32

struct ScalingKey {
  const char *gguf, *entry;
};
constexpr ScalingKey kScalingKeys[] = {{"rope.scaling.type", kType},
                                       {"rope.scaling.factor", "factor"},
                                       {"rope.scaling.original_context_length", kLength},
                                       {"rope.scaling.yarn_beta_fast", "beta_fast"},
                                       {"rope.scaling.yarn_beta_slow", "beta_slow"}};

int64_t get_head_dim(const GgufFile& file, const std::string& prefix) {
  const std::string key = prefix + "attention.key_length";
  if (file.has(key)) return file.get<int64_t>(key);
  const auto heads = file.get<int64_t>(prefix + "attention.head_count");
  return heads > 0 ? file.get<int64_t>(prefix + "embedding_length") / heads : 0;
}

// Returns the divisor of the angle of each pair.
std::vector<double> compute_divisors(const RotaryOptions& options, int64_t features) {
  std::vector<double> divisors = compute_rotary_angles({.base = options.base}, features);
  const std::vector<double> scaled = compute_rotary_angles(options, features);
  for (size_t i = 0; i < divisors.size(); ++i) divisors[i] /= scaled[i];
  return divisors;
}

bool are_close(const std::vector<double>& a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= kTolerance * a[i])) return false;
  return true;
}

// Returns the scaling of Llama 3 with these divisors, with the ends of the ramp of all published models. The
// file does not contain the length, which the divisors between 1 and the factor determine.
std::optional<RotaryScaling> find_scaling(const std::vector<double>& divisors, double base) {
  const auto features = static_cast<int64_t>(2 * divisors.size());
  const std::vector<double> angles = compute_rotary_angles({.base = base}, features);
  RotaryScaling scaling{.kind = RotaryScalingKind::llama3, .factor = divisors.back()};
  if (!(scaling.factor > 1) || !std::isfinite(scaling.factor)) return {};
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double share = (1 / divisors[i] - 1 / scaling.factor) / (1 - 1 / scaling.factor);
    const double length =
        std::round((share * (scaling.fast - scaling.slow) + scaling.slow) * kTurn / angles[i]);
    if (share > 0.01 && share < 0.99 && length >= 1 && length < 1e12)
      lengths.push_back(static_cast<int64_t>(length));
  }
  constexpr int kMaxPower = 24;
  for (int power = 1; power <= kMaxPower; ++power) lengths.push_back(int64_t{1} << power);
  for (const int64_t length : lengths) {
    scaling.length = length;
    if (are_close(divisors, compute_divisors({.base = base, .scaling = scaling}, features))) return scaling;
  }
  return {};
}

void read_divisors(const GgufFile& file, int64_t rotated, ConfigJson& config) {
  if (!file.entries().contains(kDivisors)) return;
  const std::string start = file.path() + ": the tensor \"" + kDivisors + "\"";
  const Tensor tensor = file.read(kDivisors);
  if (tensor.numel() != rotated / 2 || tensor.dtype() != DType::float32 || tensor.numel() == 0)
    throw CheckpointError(
        concat_text(start, ": expected ", rotated / 2, " numbers, got the shape ", tensor.shape()));
  const std::vector<double> divisors = tensor.to_vector();
  if (std::all_of(divisors.begin(), divisors.end(), [](double x) { return x == 1; })) return;
  const auto scaling = find_scaling(divisors, config.value("rope_theta", 1e4));
  if (!scaling || config.contains(kScaling))
    throw CheckpointError(start +
                          ": the rotary positions are no scaling of Llama 3, which the program could read");
  config[kScaling] = {{kType, "llama3"},
                      {"factor", scaling->factor},
                      {"low_freq_factor", scaling->slow},
                      {"high_freq_factor", scaling->fast},
                      {kLength, scaling->length}};
}

}  // namespace

bool is_gguf_rotary_key(const std::string& key) {
  return key == "rope.dimension_count" || key == "rope.scaling.finetuned" ||
         std::any_of(std::begin(kScalingKeys), std::end(kScalingKeys),
                     [&](const ScalingKey& known) { return key == known.gguf; });
}

void read_gguf_rotary(const ModelFamily& family, const GgufFile& file, ConfigJson& config) {
  const std::string prefix = family.gguf + ".", key = prefix + "rope.dimension_count";
  const int64_t dim = get_head_dim(file, prefix);
  int64_t rotated = dim;
  if (file.has(key)) {
    rotated = file.get<int64_t>(key);
    if (rotated < 1 || rotated > dim)
      throw CheckpointError(
          concat_text(file.path(), ": ", key, ": is ", rotated, ", and heads have ", dim, " dimensions"));
    config["partial_rotary_factor"] = static_cast<double>(rotated) / static_cast<double>(dim);
  }
  const std::string type_key = prefix + "rope.scaling.type", factor_key = prefix + "rope.scaling.factor";
  // The type of a file without a type is "linear". The factor 0 stands for none.
  const double factor = file.has(factor_key) ? file.get<double>(factor_key) : 0;
  const std::string type = file.has(type_key)           ? file.get<std::string>(type_key)
                           : factor != 0 && factor != 1 ? "linear"
                                                        : "none";
  if (type != "none") {
    config[kScaling][kType] = type;
    for (const auto& [name, entry] : kScalingKeys) {
      if (!file.has(prefix + name) || entry == kType) continue;
      if (entry == kLength)
        config[kScaling][entry] = file.get<int64_t>(prefix + name);
      else
        config[kScaling][entry] = file.get<double>(prefix + name);
    }
  }
  // Linear files may name the length, which has no effect.
  if (config.contains(kScaling) && config[kScaling][kType] == "linear")
    for (const char* entry : {kLength, "beta_fast", "beta_slow"}) config[kScaling].erase(entry);
  read_divisors(file, rotated, config);
}

std::vector<std::pair<std::string, GgufValue>> write_gguf_rotary(const ModelFamily& family,
                                                                 const ConfigJson& config) {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  if (!config.contains("rope_theta")) return metadata;
  const std::string prefix = family.gguf + ".";
  const double share = config.value("partial_rotary_factor", 1.0);
  metadata.emplace_back(prefix + "rope.dimension_count",
                        static_cast<int64_t>(share * config.at("head_dim").get<double>()));
  if (!config.contains(kScaling)) return metadata;
  const ConfigJson& scaling = config.at(kScaling);
  if (scaling.at(kType) == "llama3") {
    if (family.gguf != "llama" || scaling.at("low_freq_factor") != 1 || scaling.at("high_freq_factor") != 4)
      throw ConfigError(
          "GGUF files have the rotary positions \"llama3\" only for the family llama, with the "
          "rotary_slow 1 and rotary_fast 4");
    return metadata;
  }
  if (scaling.contains("attention_factor"))
    throw ConfigError("GGUF files have no model.rotary_amplitude: expected 0");
  for (const auto& [name, entry] : kScalingKeys) {
    if (!scaling.contains(entry)) continue;
    const ConfigJson& value = scaling.at(entry);
    if (value.is_string())
      metadata.emplace_back(prefix + name, value.get<std::string>());
    else if (value.is_number_integer())
      metadata.emplace_back(prefix + name, value.get<int64_t>());
    else
      metadata.emplace_back(prefix + name, value.get<double>());
  }
  return metadata;
}

Tensor make_gguf_rotary_divisors(const ConfigJson& config) {
  if (!config.contains(kScaling) || config.at(kScaling).at(kType) != "llama3") return {};
  const ConfigJson& scaling = config.at(kScaling);
  const double features = config.value("partial_rotary_factor", 1.0) * config.at("head_dim").get<double>();
  const RotaryOptions options{.base = config.at("rope_theta").get<double>(),
                              .scaling = {.kind = RotaryScalingKind::llama3,
                                          .factor = scaling.at("factor").get<double>(),
                                          .length = scaling.at(kLength).get<int64_t>(),
                                          .slow = scaling.at("low_freq_factor").get<double>(),
                                          .fast = scaling.at("high_freq_factor").get<double>()}};
  const std::vector<double> divisors = compute_divisors(options, static_cast<int64_t>(features));
  return Tensor::from_vector(divisors, {static_cast<int64_t>(divisors.size())}).to(DType::float32);
}

}  // namespace tapeformer
