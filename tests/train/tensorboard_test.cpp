// Tests of TensorBoard event files. The tests compare checksums of records, and decode events with the
// program protoc.
#include "train/loop/tensorboard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/support/temp_dir.h"
#include "tests/train/quiet_training.h"
#include "train/checkpoint/checkpoint.h"
#include "train/metrics.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

// Returns the CRC-32C of the bytes, computed bit by bit.
uint32_t crc32c_of(const std::string& bytes) {
  uint32_t sum = 0xFFFFFFFF;
  for (const char c : bytes) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) sum = (sum & 1) != 0 ? sum >> 1 ^ 0x82F63B78 : sum >> 1;
  }
  return ~sum;
}

template <class T>
T value_at(const std::string& text, size_t offset) {
  T value;
  std::memcpy(&value, text.data() + offset, sizeof value);
  return value;
}

// Returns `size` bytes of a file from `offset`. Checks the masked checksum after the bytes, and sets `offset`
// to the end of the checksum.
std::string read_checked(const std::string& file, size_t& offset, size_t size) {
  const std::string bytes = file.substr(offset, size);
  const uint32_t sum = crc32c_of(bytes);
  CHECK(value_at<uint32_t>(file, offset + size) == (sum >> 15 | sum << 17) + 0xA282EAD8);
  offset += size + 4;
  return bytes;
}

// Returns the encoded events of the event files in a folder, in the order of the names of the files.
std::vector<std::string> events_in(const fs::path& folder) {
  std::vector<std::string> events;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    const std::string file = read_file(path);
    for (size_t offset = 0; offset < file.size();) {
      const auto size = value_at<uint64_t>(read_checked(file, offset, 8), 0);
      events.push_back(read_checked(file, offset, size));
    }
  }
  return events;
}

// Returns the text that the program protoc prints for an encoded event.
std::string decoded(const std::string& event) {
  const TempDir dir;
  std::ofstream(dir.path() / "event", std::ios::binary) << event;
  const std::string protos = fs::path(__FILE__).parent_path().string();
  const std::string command =
      "protoc -I '" + protos + "' --decode=tapeformer.tensorboard.Event tensorboard_event.proto < '" +
      (dir.path() / "event").string() + "' > '" + (dir.path() / "text").string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  return read_file(dir.path() / "text");
}

struct Field {
  uint64_t number = 0, integer = 0;  // `integer` is the value of a varint field
  std::string bytes = {};            // value of any other field
};

std::vector<Field> fields_of(const std::string& message) {
  std::vector<Field> fields;
  size_t at = 0;
  const auto read_varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t tag = read_varint(), wire_type = tag & 7;
    Field field{tag >> 3};
    if (wire_type == 0) {
      field.integer = read_varint();
    } else {
      const size_t size = wire_type == 1 ? 8 : wire_type == 5 ? 4 : read_varint();
      field.bytes = message.substr(at, size);
      at += size;
    }
    fields.push_back(field);
  }
  return fields;
}

Field field_of(const std::string& message, uint64_t number) {
  for (const Field& field : fields_of(message))
    if (field.number == number) return field;
  return {};
}

// For each tag, the steps and values of its scalars.
using Scalars = std::map<std::string, std::vector<std::pair<int64_t, float>>>;

// Returns the scalars that TensorBoard shows for the event files of a folder. As in
// tensorboard/backend/event_processing/event_accumulator.py, the start of a session removes all earlier
// events of its step and of later steps.
Scalars shown_scalars(const fs::path& folder) {
  constexpr uint64_t kStep = 2, kSummary = 5, kSessionLog = 7, kSimpleValue = 2;
  Scalars shown;
  for (const std::string& event : events_in(folder)) {
    const auto step = static_cast<int64_t>(field_of(event, kStep).integer);
    if (!field_of(event, kSessionLog).bytes.empty())
      for (auto& [tag, values] : shown)
        std::erase_if(values, [&](const auto& value) { return value.first >= step; });
    for (const Field& value : fields_of(field_of(event, kSummary).bytes))
      if (const std::string number = field_of(value.bytes, kSimpleValue).bytes; !number.empty())
        shown[field_of(value.bytes, 1).bytes].emplace_back(step, value_at<float>(number, 0));
  }
  return shown;
}

// Returns the scalars of the records in metrics.jsonl.
Scalars recorded_scalars(const fs::path& run_dir) {
  Scalars scalars;
  for (const MetricRecord& record : read_metrics((run_dir / "metrics.jsonl").string()))
    for (const auto& [field, value] : record)
      if (const double number = get_metric_number(record, field, NAN);
          field != "step" && std::isfinite(number))
        scalars[get_metric_text(record, "split") + "/" + field].emplace_back(
            static_cast<int64_t>(get_metric_number(record, "step", -1)), static_cast<float>(number));
  return scalars;
}

// Returns the config of a run of the copy task that evaluates and saves a checkpoint every 5 steps.
Config recorded_config(int64_t steps) {
  Config config;
  config.run.device = "cpu";
  config.run.threads = 1;
  config.run.tensorboard = true;
  config.data = {.dataset = "copy", .batch_size = 2, .eval_limit = 2, .options = {{"max_length", 8}}};
  config.model.type = "sequence";
  config.model.options.set("layers", 1);
  config.model.options.set("heads", 1);
  config.model.options.set("head_dim", 8);
  config.model.options.set("feedforward", 8);
  config.attention = {{"linear", find_attention_kind("linear").default_options()}};
  config.train.steps = steps;
  config.train.checkpoint_every = config.train.eval_every = 5;
  config.train.log_every = 1;
  return config;
}

// Changes a run directory as if the process had been killed after the records of the newest step were
// written. The latest checkpoint becomes the checkpoint of step `step`, whose evaluation is not in its state
// if `is_evaluated` is false.
void undo_checkpoints_after(const fs::path& run_dir, int64_t step, bool is_evaluated) {
  for (const int64_t saved : list_checkpoint_steps(run_dir.string()))
    if (saved > step)
      fs::remove_all(run_dir / concat_text("checkpoints/step-", saved < 10 ? "0000000" : "000000", saved));
  for (const char* link : {"latest", "best"}) fs::remove(run_dir / "checkpoints" / link);
  TrainingState state = Checkpoint(find_checkpoint(run_dir.string(), false)).read_state();
  REQUIRE(state.step == step);
  if (!is_evaluated) state.last_evaluation_step = -1;
  replace_checkpoint_state(run_dir.string(), state);
}

}  // namespace

TEST_CASE("TensorBoard: a resumed run shows exactly the records of metrics.jsonl") {
  for (const bool is_evaluated : {true, false}) {
    CAPTURE(is_evaluated);
    const TempDir dir;
    const fs::path run_dir = dir / "run";
    const auto check_same_scalars = [&] {
      const Scalars shown = shown_scalars(run_dir), recorded = recorded_scalars(run_dir);
      CHECK(shown == recorded);
      return recorded;
    };
    train(recorded_config(5), run_dir);
    train(recorded_config(10), run_dir, true);
    CHECK(check_same_scalars()["test/loss_nats"].size() == 2);
    train(recorded_config(13), run_dir, true);
    undo_checkpoints_after(run_dir, 10, is_evaluated);
    CHECK(shown_scalars(run_dir)["train/loss_nats"].back().first == 13);  // records after the checkpoint
    train(recorded_config(12), run_dir, true);
    const Scalars recorded = check_same_scalars();
    CHECK(recorded.at("train/loss_nats").size() == 12);
    CHECK(recorded.at("test/loss_nats").size() == 3);
  }
}

TEST_CASE("TensorBoard: a run that is resumed after its last step shows the missing evaluation") {
  const TempDir dir;
  const fs::path run_dir = dir / "run";
  train(recorded_config(10), run_dir);
  undo_checkpoints_after(run_dir, 10, false);
  train(recorded_config(10), run_dir, true);
  const Scalars recorded = recorded_scalars(run_dir);
  CHECK(recorded.at("test/loss_nats").size() == 2);
  CHECK(shown_scalars(run_dir) == recorded);
}

TEST_CASE("TensorBoard: event files contain checked records of scalars, images and texts") {
  CHECK(crc32c_of("123456789") == 0xE3069283);  // check value of CRC-32C
  const TempDir dir;
  {
    EventWriter writer{Folder(dir.path().string())};
    writer.write_session_start(6);
    writer.write_scalars({{"step", int64_t{300}}, {"split", "train"}, {"loss_nats", 0.5}, {"lr", NAN}});
    writer.write_image("samples", 8, "PNG bytes", 2, 300, 1);
    writer.write_text("config", 0, "x = 1");
  }
  const auto events = events_in(dir.path());
  REQUIRE(events.size() == 5);
  if (std::system("protoc --version > /dev/null 2>&1") != 0) {
    MESSAGE("skipped: the program protoc is missing");
    return;
  }
  std::vector<std::string> texts;
  for (const std::string& event : events) {
    const std::string text = decoded(event);
    CHECK(std::stod(text.substr(text.find(' '))) > 1.6e9);  // field wall_time, in seconds since 1970
    texts.push_back(text.substr(text.find('\n') + 1));
  }
  CHECK(texts[0] == "step: 0\nfile_version: \"brain.Event:2\"\n");
  CHECK(texts[1] == "step: 6\nsession_log {\n  status: START\n}\n");
  CHECK(texts[2] ==
        "step: 300\nsummary {\n  value {\n    tag: \"train/loss_nats\"\n    simple_value: 0.5\n  }\n}\n");
  CHECK(
      texts[3] ==
      "step: 8\nsummary {\n  value {\n    tag: \"samples\"\n    image {\n      height: 2\n      width: 300\n"
      "      colorspace: 1\n      encoded_image_string: \"PNG bytes\"\n    }\n  }\n}\n");
  CHECK(texts[4] ==
        "step: 0\nsummary {\n  value {\n    tag: \"config\"\n    tensor {\n      dtype: STRING\n"
        "      tensor_shape {\n        dim {\n          size: 1\n        }\n      }\n"
        "      string_val: \"x = 1\"\n    }\n    metadata {\n      plugin_data {\n"
        "        plugin_name: \"text\"\n      }\n    }\n  }\n}\n");
}
