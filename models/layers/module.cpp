#include "models/layers/module.h"

#include <algorithm>
#include <optional>

#include "core/base/errors.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// Returns a tensor of zeros. If the allocation fails, the error message contains `name` and `shape`.
Tensor make_zeros(const std::string& name, const Shape& shape) {
  try {
    return Tensor::zeros(shape);
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError(concat_text(error.what(), ", for \"", name, "\" ", shape));
  }
}

template <class F>
Initializer make_elementwise_initializer(F draw) {
  return [draw](const Tensor& parameter, const RandomStream& stream) {
    for (int64_t i = 0; i < parameter.numel(); ++i)
      parameter.data<double>()[i] = draw(stream, static_cast<uint64_t>(i));
  };
}

// Number of elements that the ParameterLimitScope of this thread still allows. Empty if there is no limit.
thread_local std::optional<int64_t> elements_left;

}  // namespace

ParameterLimitScope::ParameterLimitScope(int64_t elements) {
  elements_left = elements;
}

ParameterLimitScope::~ParameterLimitScope() {
  elements_left.reset();
}

void ParameterLimitScope::subtract(const std::string& name, const Shape& shape) {
  if (!elements_left) return;
  *elements_left -= shape.numel();
  if (*elements_left < 0) throw ParameterLimitError("parameter " + name + " " + shape.to_string());
}

Tensor StoredDecisions::get_or_decide(const std::string& name, const std::function<Tensor()>& decide) {
  auto found = decisions_.find(name);
  if (found == decisions_.end()) found = decisions_.emplace(name, decide()).first;
  return found->second;
}

int64_t StoredDecisions::bytes() const {
  int64_t total = 0;
  for (const auto& [name, tensor] : decisions_) total += tensor.bytes();
  return total;
}

ReplayContext::ReplayContext(const ForwardContext& context, bool replayed) : context_(context) {
  if (!replayed || context.decisions) return;
  owned_decisions_ = std::make_shared<StoredDecisions>();
  context_.decisions = owned_decisions_.get();
}

std::vector<Tensor> strip_names(const NamedTensors& named) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

Initializer make_uniform_initializer(double bound) {
  return make_elementwise_initializer(
      [bound](const RandomStream& stream, uint64_t i) { return bound * (2 * stream.uniform(i) - 1); });
}
Initializer make_normal_initializer(double std) {
  return make_elementwise_initializer(
      [std](const RandomStream& stream, uint64_t i) { return std * stream.normal(i); });
}
Initializer make_constant_initializer(double value) {
  return [value](const Tensor& parameter, const RandomStream&) { parameter.fill(value); };
}

void Module::add_parameter(std::string name, Tensor& tensor, const Shape& shape, Initializer initializer,
                           ParameterOptions options) {
  ParameterLimitScope::subtract(name, shape);
  tensor = make_zeros(name, shape);
  set_requires_grad(tensor);
  registered_tensors_.push_back({std::move(name), &tensor, std::move(initializer), true, options});
}

void Module::add_state(std::string name, Tensor& tensor, const Shape& shape, Initializer initializer) {
  ParameterLimitScope::subtract(name, shape);
  tensor = make_zeros(name, shape);
  registered_tensors_.push_back({std::move(name), &tensor, std::move(initializer), false});
}

void Module::add_buffer(std::string name, Tensor& tensor) {
  registered_tensors_.push_back({std::move(name), &tensor, {}, false});
}

void Module::add_statistics(Tensor& sums, const Shape& shape, std::function<void()> update) {
  sums = Tensor::zeros(shape);
  statistics_.push_back({&sums, std::move(update)});
}

void Module::add_alias(Tensor& alias, const Tensor& tensor) {
  aliases_.emplace_back(&alias, &tensor);
  alias = tensor;
}

void Module::keep_adjacent(std::vector<Tensor*> parameters) {
  adjacent_groups_.push_back(std::move(parameters));
  make_parameters_adjacent();
}

void Module::make_parameters_adjacent() const {
  for (const std::vector<Tensor*>& group : adjacent_groups_) {
    std::vector<Tensor> parts;
    for (const Tensor* parameter : group) parts.push_back(detach(*parameter));
    const Tensor all = concat(parts, 0);
    int64_t first = 0;
    for (Tensor* parameter : group) {
      const bool is_leaf = requires_grad(*parameter);
      *parameter = slice(all, 0, first, first + parameter->size(0));
      if (is_leaf) set_requires_grad(*parameter);
      first += parameter->size(0);
    }
  }
  for (const auto& [name, child] : children_) child->make_parameters_adjacent();
}

void Module::update_aliases() {
  for (const auto& [alias, tensor] : aliases_) *alias = *tensor;
  for (const auto& [name, child] : children_) child->update_aliases();
}

void Module::visit_tensors(const std::string& prefix,
                           const std::function<void(const std::string&, const RegisteredTensor&)>& f) const {
  for (const RegisteredTensor& entry : registered_tensors_) f(prefix + entry.name, entry);
  for (const auto& [name, child] : children_)
    child->visit_tensors(name.empty() ? prefix : prefix + name + ".", f);
}

NamedTensors Module::select_tensors(const std::function<bool(const RegisteredTensor&)>& condition) const {
  NamedTensors list;
  visit_tensors("", [&](const std::string& name, const RegisteredTensor& entry) {
    if (condition(entry)) list.emplace_back(name, *entry.tensor);
  });
  return list;
}

NamedTensors Module::parameters() const {
  return select_tensors([](const RegisteredTensor& entry) { return entry.is_parameter && !entry.is_frozen; });
}

NamedTensors Module::undecayed_parameters() const {
  return select_tensors([](const RegisteredTensor& entry) {
    return entry.is_parameter && !entry.is_frozen && !entry.options.decays;
  });
}

NamedTensors Module::frozen_parameters() const {
  return select_tensors([](const RegisteredTensor& entry) { return entry.is_parameter && entry.is_frozen; });
}

NamedTensors Module::saved_tensors() const {
  return select_tensors([](const RegisteredTensor& entry) { return static_cast<bool>(entry.initializer); });
}

NamedTensors Module::buffers() const {
  return select_tensors([](const RegisteredTensor& entry) { return !entry.initializer; });
}

void Module::append_aliased_leaves(std::vector<Tensor>& leaves) const {
  for (const auto& [alias, tensor] : aliases_) leaves.push_back(*tensor);
  for (const auto& [name, child] : children_) child->append_aliased_leaves(leaves);
}

std::vector<Tensor> Module::leaves() const {
  std::vector<Tensor> list = strip_names(parameters());
  append_aliased_leaves(list);
  return list;
}

std::vector<Tensor> Module::statistics() const {
  std::vector<Tensor> list;
  for (const Statistics& own : statistics_) list.push_back(*own.sums);
  for (const auto& [name, child] : children_)
    for (const Tensor& sums : child->statistics()) list.push_back(sums);
  return list;
}

void Module::remove_child(const Module& child) {
  std::erase_if(children_, [&](const auto& entry) { return entry.second == &child; });
}

void Module::visit_modules(const std::string& prefix,
                           const std::function<void(const std::string& name, Module& module)>& f) {
  f(prefix.empty() ? prefix : prefix.substr(0, prefix.size() - 1), *this);
  for (const auto& [name, child] : children_)
    child->visit_modules(name.empty() ? prefix : prefix + name + ".", f);
}

void Module::visit_modules(const std::function<void(const std::string& name, Module& module)>& f) {
  visit_modules("", f);
}

void Module::freeze_tensors(const std::string& prefix,
                            const std::function<bool(const std::string& name)>& selects) {
  for (RegisteredTensor& entry : registered_tensors_)
    if (entry.initializer && selects(prefix + entry.name)) {
      entry.is_frozen = true;
      *entry.tensor = detach(*entry.tensor);
    }
  for (const auto& [name, child] : children_)
    child->freeze_tensors(name.empty() ? prefix : prefix + name + ".", selects);
}

void Module::freeze(const std::function<bool(const std::string& name)>& selects) {
  freeze_tensors("", selects);
  update_aliases();
}

bool Module::has_frozen_state() const {
  return std::any_of(registered_tensors_.begin(), registered_tensors_.end(),
                     [](const RegisteredTensor& entry) { return !entry.is_parameter && entry.is_frozen; });
}

void Module::update_state() const {
  const NoGradScope no_grad;
  for (const Statistics& own : statistics_) {
    if (!has_frozen_state()) own.update();
    own.sums->fill(0);
  }
  for (const auto& [name, child] : children_) child->update_state();
}

void Module::initialize(uint64_t seed) const {
  visit_tensors("", [&](const std::string& name, const RegisteredTensor& entry) {
    if (!entry.initializer) return;
    const Tensor values = Tensor::zeros(entry.tensor->shape(), DType::float64);
    entry.initializer(values, RandomStream(seed, "init " + name));
    entry.tensor->copy_from(values);
  });
}

void Module::convert(DType dtype) {
  replace_tensors(
      [&](const Tensor& tensor) { return is_floating(tensor.dtype()) ? detach(tensor).to(dtype) : tensor; });
}

void Module::move(Device device) {
  replace_tensors([&](const Tensor& tensor) { return detach(tensor).to(device); });
}

void Module::replace_tensors(const std::function<Tensor(const Tensor&)>& replacement) {
  visit_tensors("", [&](const std::string&, const RegisteredTensor& entry) {
    *entry.tensor = replacement(*entry.tensor);
    if (entry.is_parameter && !entry.is_frozen) set_requires_grad(*entry.tensor);
  });
  replace_statistics(replacement);
  make_parameters_adjacent();
  update_aliases();
}

void Module::replace_statistics(const std::function<Tensor(const Tensor&)>& replacement) {
  for (const Statistics& own : statistics_) *own.sums = replacement(*own.sums);
  for (const auto& [name, child] : children_) child->replace_statistics(replacement);
}

int64_t count_parameters(const Module& module) {
  int64_t count = 0;
  for (const NamedTensors& list : {module.parameters(), module.frozen_parameters()})
    for (const auto& [name, tensor] : list) count += tensor.numel();
  return count;
}

}  // namespace tapeformer
