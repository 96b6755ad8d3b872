#include "train/pretrained/family_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/errors.h"
#include "core/system/printable.h"

namespace tapeformer {
namespace {

constexpr char kEmbedding[] = "value_embedding.weight", kPredictor[] = "predictor.weight";

// A rule for one tensor of one layer.
struct Entry {
  std::string name;
  std::vector<std::string> parameters = {};
  TensorForm form = {};
  bool is_scaled = false;
  HeadSizes heads = {};  // of the layer
};

std::string insert_layer(std::string text, int64_t layer) {
  const size_t at = text.find("{}");
  return at == std::string::npos ? text : text.replace(at, 2, std::to_string(layer));
}

std::string insert_kind(const std::string& text, const std::string& kind) {
  return text.ends_with(".*") ? text.substr(0, text.size() - 1) + kind : text;
}

std::vector<Entry> list_entries(const ModelFamily& family, PretrainedFormat format,
                                const FamilySizes& sizes) {
  std::vector<Entry> entries;
  const bool is_gguf = format == PretrainedFormat::gguf;
  const auto add = [&](const TensorRule& rule, int64_t layer, const std::string& kind) {
    const auto name = [&](const std::string& text) { return insert_layer(insert_kind(text, kind), layer); };
    Entry entry{.name = name(is_gguf ? rule.gguf : rule.huggingface),
                .form = is_gguf ? rule.gguf_form : rule.huggingface_form,
                .is_scaled = rule.is_scaled};
    if (!sizes.layers.empty()) entry.heads = sizes.layers[static_cast<size_t>(layer)].heads;
    for (const std::string& parameter : rule.parameters) entry.parameters.push_back(name(parameter));
    entries.push_back(std::move(entry));
  };
  const auto add_kinds = [&](const TensorRule& rule, int64_t layer) {
    add(rule, layer, "weight");
    if (rule.parameters[0].ends_with(".*")) add(rule, layer, "bias");
  };
  const auto& rules = family.tensors;
  const auto is_of_layer = [](const TensorRule& rule) {
    return rule.parameters[0].find("{}") != std::string::npos;
  };
  const auto first = std::find_if(rules.begin(), rules.end(), is_of_layer);
  const auto last = std::find_if_not(first, rules.end(), is_of_layer);
  for (auto rule = rules.begin(); rule != first; ++rule) add_kinds(*rule, 0);
  for (size_t layer = 0; layer < sizes.layers.size(); ++layer)
    for (auto rule = first; rule != last; ++rule)
      if (rule->kind.empty() || rule->kind == sizes.layers[layer].kind)
        add_kinds(*rule, static_cast<int64_t>(layer));
  for (auto rule = last; rule != rules.end(); ++rule) add_kinds(*rule, 0);
  return entries;
}

// A row of a parameter.
struct Row {
  size_t parameter = 0;
  int64_t row = 0;
};

// Returns the row of a parameter for each row of a tensor. `counts` has the number of rows of each parameter.
std::vector<Row> map_rows(RowOrder order, const std::vector<int64_t>& counts, const HeadSizes& heads) {
  std::vector<Row> rows;
  const int64_t groups = order == RowOrder::by_head ? heads.query_heads : 1, half = heads.dim / 2;
  for (int64_t group = 0; group < groups; ++group)
    for (size_t p = 0; p < counts.size(); ++p) {
      const int64_t count = counts[p] / groups;
      for (int64_t i = 0; i < count; ++i) rows.push_back({p, group * count + i});
    }
  if (order == RowOrder::interleaved)
    for (Row& row : rows) {
      const int64_t in_head = row.row % heads.dim;
      row.row += in_head / 2 + (in_head % 2) * half - in_head;
    }
  return rows;
}

// The parameters of an entry, and the form of its tensor.
class Packed {
 public:
  Packed(const Entry& entry, std::vector<Tensor> parameters, int64_t width)
      : parameters_(std::move(parameters)) {
    std::vector<int64_t> counts;
    for (const Tensor& parameter : parameters_) counts.push_back(parameter.size(0));
    rows_ = map_rows(entry.form.order, counts, entry.heads);
    shape_ = parameters_[0].shape();
    columns_ = parameters_[0].numel() / std::max<int64_t>(parameters_[0].size(0), 1);
    shape_[0] = static_cast<int64_t>(rows_.size());
    if (entry.form.shape == FileShape::conv) shape_ = {shape_[0], 1, columns_};
    if (entry.form.shape == FileShape::vector) shape_ = {shape_[0]};
    is_transposed_ = entry.form.is_transposed && shape_.rank() == 2;
    if (is_transposed_) std::swap(shape_[0], shape_[1]);
    scale_ = entry.is_scaled ? std::sqrt(static_cast<float>(width)) : 1;
  }
  const Shape& shape() const { return shape_; }

  void unpack(const Tensor& source) const {
    for_each_element(source, [this](float& from, float& to) { to = from * scale_; });
  }
  Tensor pack() const {
    Tensor result = Tensor::empty(shape_);
    for_each_element(result, [this](float& to, float& from) { to = from / scale_; });
    return result;
  }
  bool is_equal(const Tensor& source) const {
    bool equal = true;
    for_each_element(
        source, [&](const float& a, const float& b) { equal = equal && std::memcmp(&a, &b, sizeof a) == 0; });
    return equal;
  }

 private:
  // Calls f(element of `packed`, element of a parameter) for all elements.
  template <class F>
  void for_each_element(const Tensor& packed, F f) const {
    const auto count = static_cast<int64_t>(rows_.size());
    const int64_t row_stride = is_transposed_ ? 1 : columns_, stride = is_transposed_ ? count : 1;
    auto* const data = packed.data<float>();
    for (int64_t r = 0; r < count; ++r) {
      const Row& row = rows_[static_cast<size_t>(r)];
      float* const values = parameters_[row.parameter].data<float>() + row.row * columns_;
      for (int64_t c = 0; c < columns_; ++c) f(data[r * row_stride + c * stride], values[c]);
    }
  }

  std::vector<Tensor> parameters_;
  std::vector<Row> rows_;
  Shape shape_;
  int64_t columns_ = 0;
  bool is_transposed_ = false;
  float scale_ = 1;
};

// Returns the name of a parameter and the part of its rows, "query", "key", "value" or "".
std::pair<std::string, std::string> split_part(const std::string& name) {
  const size_t at = name.find('[');
  if (at == std::string::npos) return {name, ""};
  return {name.substr(0, at), name.substr(at + 1, name.size() - at - 2)};
}

// Returns the parameters that exist.
std::vector<Tensor> find_parameters(const std::map<std::string, Tensor>& all,
                                    const std::vector<std::string>& names, const HeadSizes& heads) {
  std::vector<Tensor> result;
  for (const std::string& full_name : names) {
    const auto [name, part] = split_part(full_name);
    const auto found = all.find(name);
    if (found == all.end()) continue;
    result.push_back(found->second.alias());
    if (part.empty()) continue;
    const int64_t keys = heads.key_heads * heads.dim, queries = heads.query_heads * heads.dim;
    const int64_t first = part == "query" ? 0 : part == "key" ? queries : queries + keys;
    Tensor& rows = result.back();
    Shape shape = rows.shape();
    shape[0] = part == "query" ? queries : part == "key" ? keys : heads.value_heads * heads.value_dim;
    rows = rows.alias(shape, rows.strides(), first * rows.strides()[0]);
  }
  return result;
}

// Returns the name in the rules of a tensor of a file.
std::string get_rule_name(const ModelFamily& family, PretrainedFormat format, const std::string& name) {
  if (format == PretrainedFormat::gguf || name == find_predictor_name(family, format)) return name;
  for (const auto& [end, own_end] : family.other_names)
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size()) + own_end;
  const auto& [outer, inner] = family.outer_prefix;
  if (!outer.empty() && name.starts_with(outer)) return inner + name.substr(outer.size());
  return name.starts_with(family.optional_prefix) ? name : family.optional_prefix + name;
}

std::string quote_name(const std::string& name) {
  return "\"" + escape_line(name.substr(0, 200)) + "\"";
}

// Removes the names that the family ignores. A name can contain a number of a layer.
bool is_ignored(const ModelFamily& family, const std::string& name) {
  return std::any_of(
      family.ignored_tensors.begin(), family.ignored_tensors.end(), [&](const std::string& pattern) {
        const size_t at = pattern.find("{}");
        if (pattern.ends_with("*")) return name.starts_with(pattern.substr(0, pattern.size() - 1));
        if (at == std::string::npos) return name == pattern;
        const std::string first = pattern.substr(0, at), last = pattern.substr(at + 2);
        for (const std::string& full : {name, family.optional_prefix + name})
          if (full.starts_with(first) && full.ends_with(last) && full.size() > first.size() + last.size() &&
              full.find_first_not_of("0123456789", first.size()) == full.size() - last.size())
            return true;
        return false;
      });
}

// The tensors of a file by the names of the rules.
class NamedSource {
 public:
  NamedSource(const ModelFamily& family, PretrainedFormat format, const WeightSource& source)
      : source_(source) {
    for (const auto& [name, entry] : source.entries()) add(get_rule_name(family, format, name), name);
  }
  const std::string* find(const std::string& name) {
    const auto found = names_.find(name);
    if (found == names_.end()) return nullptr;
    used_.insert(found->second);
    return &found->second;
  }
  void check_used(const ModelFamily& family) const {
    for (const auto& [name, entry] : source_.entries())
      if (!used_.contains(name) && !is_ignored(family, name))
        throw CheckpointError(concat_text(source_.path(), ": the tensor ", quote_name(name), " of shape ",
                                          entry.shape.to_string(), " belongs to no parameter of the model ",
                                          family.name, " that the config describes"));
  }

 private:
  void add(const std::string& name, const std::string& own_name) {
    if (!names_.emplace(name, own_name).second)
      throw CheckpointError(source_.path() + ": contains the tensor " + quote_name(name) + " twice");
  }
  const WeightSource& source_;
  std::map<std::string, std::string> names_;
  std::set<std::string> used_;
};

}  // namespace

FamilySizes get_family_sizes(const EncoderOptions& options) {
  FamilySizes sizes{.width = options.width()};
  for (int64_t layer = 0; layer < options.layers; ++layer)
    sizes.layers.push_back({find_layer_choice(options.attention, layer).kind,
                            get_head_sizes(options.attention, layer, options.head_sizes())});
  return sizes;
}

std::optional<std::string> find_source_name(const ModelFamily& family, PretrainedFormat format,
                                            const WeightSource& source, const std::string& name) {
  for (const auto& [own_name, entry] : source.entries())
    if (get_rule_name(family, format, own_name) == name) return own_name;
  return {};
}

std::string find_predictor_name(const ModelFamily& family, PretrainedFormat format) {
  for (const TensorRule& rule : family.tensors)
    if (rule.parameters[0] == kPredictor)
      return format == PretrainedFormat::gguf ? rule.gguf : rule.huggingface;
  return "";
}

void load_family_weights(const ModelFamily& family, PretrainedFormat format, const FamilySizes& sizes,
                         const WeightSource& source, const NamedTensors& parameters) {
  std::map<std::string, Tensor> targets(parameters.begin(), parameters.end());
  const bool is_tied = !targets.contains(kPredictor);
  NamedSource names(family, format, source);
  std::set<std::string> loaded;
  for (const Entry& entry : list_entries(family, format, sizes)) {
    const bool is_copy = is_tied && entry.parameters[0] == kPredictor;
    const std::vector<Tensor> values = find_parameters(
        targets, is_copy ? std::vector<std::string>{kEmbedding} : entry.parameters, entry.heads);
    if (values.size() < entry.parameters.size()) continue;
    const std::string* const name = names.find(entry.name);
    if (!name && is_copy) continue;
    if (!name) throw CheckpointError(source.path() + ": has no tensor " + quote_name(entry.name));
    const Packed packed(entry, values, sizes.width);
    const Shape& shape = source.entries().at(*name).shape;
    if (!(shape == packed.shape()))
      throw CheckpointError(concat_text(source.path(), ": the tensor ", quote_name(*name), " has the shape ",
                                        shape.to_string(), ", and the config needs ",
                                        packed.shape().to_string()));
    const Tensor tensor = source.read(*name);
    if (tensor.dtype() != DType::float32)
      throw CheckpointError(source.path() + ": the tensor " + quote_name(*name) +
                            " has integers, expected floating-point numbers");
    if (!is_copy)
      packed.unpack(tensor);
    else if (!packed.is_equal(tensor))
      throw CheckpointError(concat_text(source.path(), ": ", quote_name(*name),
                                        " differs from the embedding, ",
                                        "but the config says that they are one tensor"));
    for (const std::string& parameter : entry.parameters) loaded.insert(split_part(parameter).first);
  }
  names.check_used(family);
  for (const auto& [name, parameter] : parameters)
    if (!loaded.contains(name)) throw std::logic_error(family.name + ": no rule for the parameter " + name);
}

std::vector<FamilyTensor> list_family_tensors(const ModelFamily& family, PretrainedFormat format,
                                              const FamilySizes& sizes, const NamedTensors& parameters) {
  std::map<std::string, Tensor> sources;
  for (const auto& [name, parameter] : parameters) sources[name] = parameter.alias();
  std::vector<FamilyTensor> tensors;
  std::map<std::string, size_t> index;
  std::set<std::string> written;
  for (const Entry& entry : list_entries(family, format, sizes)) {
    const std::vector<Tensor> values = find_parameters(sources, entry.parameters, entry.heads);
    if (values.size() < entry.parameters.size()) continue;
    if (entry.name.empty()) throw ConfigError("the family " + family.name + " has no GGUF files");
    const auto pack = [entry, values, width = sizes.width] { return Packed(entry, values, width).pack(); };
    for (const std::string& parameter : entry.parameters) written.insert(split_part(parameter).first);
    const auto [found, is_new] = index.emplace(entry.name, tensors.size());
    if (is_new) {
      tensors.push_back({entry.name, Packed(entry, values, sizes.width).shape(), pack});
      continue;
    }
    // The tensor must have the values of both parameters, for example of embeddings that a training has not
    // kept equal.
    const Tensor other = pack();
    FamilyTensor& tensor = tensors[found->second];
    const Tensor own = tensor.read();
    for (int64_t i = 0; i < own.numel(); ++i)
      if (std::abs(own.data<float>()[i] - other.data<float>()[i]) > 1e-6F * std::abs(other.data<float>()[i]))
        throw ConfigError(entry.parameters[0] + ": differs from the other parameters of the tensor " +
                          entry.name + " of the family " + family.name);
    tensor.read = pack;
  }
  for (const auto& [name, parameter] : parameters)
    if (!written.contains(name))
      throw ConfigError("the family " + family.name + " has no tensor for the parameter " + name);
  return tensors;
}

}  // namespace tapeformer
