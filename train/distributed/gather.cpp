#include "train/distributed/gather.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

// Returns a tensor of zeros with one element per process. If each process sets only the element of its own
// rank, all_reduce() gives all elements to every process.
Tensor make_slots(const Communicator& processes, DType dtype) {
  return Tensor::zeros({processes.size()}, dtype);
}

// Returns the settings as one text. Each name and each value ends with a zero byte.
std::string join_settings(const SharedSettings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) text.append(name).append(1, '\0').append(value).append(1, '\0');
  return text;
}

std::map<std::string, std::string> parse_settings(const std::string& text) {
  std::map<std::string, std::string> settings;
  for (size_t at = 0; at < text.size();) {
    const std::string name = text.c_str() + at;
    const std::string value = text.c_str() + at + name.size() + 1;
    settings[name] = value;
    at += name.size() + value.size() + 2;
  }
  return settings;
}

std::string find_setting(const std::map<std::string, std::string>& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "no such entry" : found->second;
}

}  // namespace

std::vector<std::string> all_gather_texts(Communicator& processes, const std::string& text) {
  std::vector<int64_t> starts{0};
  for (const int64_t size : all_gather_numbers(processes, static_cast<int64_t>(text.size())))
    starts.push_back(starts.back() + size);
  const Tensor bytes = Tensor::zeros({std::max<int64_t>(starts.back(), 1)}, DType::uint8);
  auto* const first = bytes.data<uint8_t>();
  std::memcpy(first + starts[static_cast<size_t>(processes.rank())], text.data(), text.size());
  processes.all_reduce(bytes);
  std::vector<std::string> texts;
  for (size_t rank = 0; rank + 1 < starts.size(); ++rank)
    texts.emplace_back(first + starts[rank], first + starts[rank + 1]);
  return texts;
}

std::vector<int64_t> all_gather_numbers(Communicator& processes, int64_t number) {
  const Tensor numbers = make_slots(processes, DType::int64);
  int64_t* const first = numbers.data<int64_t>();
  first[processes.rank()] = number;
  processes.all_reduce(numbers);
  return {first, first + processes.size()};
}

std::string broadcast_text(Communicator& processes, const std::string& text) {
  return all_gather_texts(processes, processes.is_first() ? text : "").front();
}

double all_reduce_max(Communicator& processes, double value) {
  const Tensor values = make_slots(processes, DType::float64);
  double* const first = values.data<double>();
  first[processes.rank()] = value;
  processes.all_reduce(values);
  return *std::max_element(first, first + processes.size());
}

bool run_on_first_process(Communicator& processes, const std::function<bool()>& f) {
  if (processes.size() == 1) return f();
  // If f() returns, `outcome` is "0" or "1". If f() throws, `outcome` is "e", followed by the message of the
  // exception.
  std::string outcome;
  std::exception_ptr failure;
  try {
    if (processes.is_first()) outcome = f() ? "1" : "0";
  } catch (const std::exception& error) {
    failure = std::current_exception();
    outcome = std::string("e") + error.what();
  }
  outcome = broadcast_text(processes, outcome);
  if (failure) std::rethrow_exception(failure);
  if (outcome.front() == 'e') throw FirstProcessError("process 0: " + outcome.substr(1));
  return outcome.front() == '1';
}

void require_divisible_batch_size(const std::string& name, int64_t batch_size,
                                  const Communicator& processes) {
  const int64_t size = processes.size();
  if (batch_size % size == 0) return;
  const int64_t below = batch_size / size * size, above = below + size;
  throw ConfigError(concat_text(name, " = ", batch_size, " cannot be divided by ", size,
                                " processes; the nearest ", below > 0 ? "sizes are " : "size is ",
                                below > 0 ? concat_text(below, " and ") : "", above));
}

void require_same_settings(Communicator& processes, const SharedSettings& settings) {
  const std::vector<std::string> texts = all_gather_texts(processes, join_settings(settings));
  const auto expected = parse_settings(texts.front());
  std::string differences;
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts.front()) continue;
    const auto found = parse_settings(texts[rank]);
    for (const auto* all : {&expected, &found})
      for (const auto& [name, value] : *all) {
        if (all == &found && expected.contains(name)) continue;
        const std::string own = find_setting(found, name), first = find_setting(expected, name);
        if (own != first)
          differences +=
              concat_text("\n  process ", rank, ": ", name, " = ", own, ", but process 0 has ", first);
      }
  }
  if (!differences.empty()) throw ConfigError("the processes of the run differ:" + differences);
}

}  // namespace tapeformer
