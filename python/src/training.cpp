// Configs and training: tapeformer._core.Config and train(). tapeformer/_training.py documents them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <csignal>

#include "python/src/arrays.h"
#include "python/src/tensor_access.h"
#include "train/config/config.h"
#include "train/loop/trainer.h"
#include "train/signals.h"

namespace tapeformer::python {
namespace {

// Calls the Python function `callback` with each record of metrics.jsonl, and keeps the records.
class RecordReceiver {
 public:
  explicit RecordReceiver(nb::object callback) : callback_(std::move(callback)) {}

  void receive(const MetricRecord& record) {
    const GilAcquire acquire;
    const nb::dict fields = to_dict(record);
    records_.append(fields);
    if (!callback_.is_none()) callback_(fields);
  }
  const nb::list& records() const { return records_; }

 private:
  nb::object callback_;
  nb::list records_;
};

nb::dict train(const Config& config, const std::string& run_dir, const std::string& data_dir, bool resume,
               bool quiet, nb::object callback) {
  RecordReceiver receiver(std::move(callback));
  TrainResult result;
  try {
    const ComputeScope compute;
    Trainer trainer(config, {.run_dir = run_dir.empty() ? "runs/" + config.run.name : run_dir,
                             .data_dir = data_dir,
                             .resume = resume,
                             .quiet = quiet,
                             .on_record = [&](const MetricRecord& record) { receiver.receive(record); }});
    throw_pending_signal();  // of the time in which the data were loaded
    result = trainer.run();
  } catch (const RunDirectoryError& error) {
    throw ConfigError(std::string(error.what()) +
                      (error.reason() == RunDirectoryError::Reason::not_empty
                           ? ": continue it with resume=True, or choose another run_dir"
                           : "; choose another run_dir"));
  }
  if (result.stop_signal != 0) {
    // The signal has the effect that it would have had without the training, if this process received it.
    if (has_received_signal(result.stop_signal)) raise(result.stop_signal);
    throw_pending_signal();
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw nb::python_error();
  }
  nb::dict summary;
  summary["step"] = result.step;
  summary["steps"] = result.total_steps;
  summary["seconds"] = result.training_seconds;
  summary["best_loss"] = result.best_loss;
  summary["time_is_up"] = result.is_time_up;
  summary["evaluation"] = result.evaluation ? nb::object(to_dict(result.evaluation->results)) : nb::none();
  summary["metrics"] = receiver.records();
  return summary;
}

nb::list read_metric_dicts(const std::string& path) {
  nb::list list;
  for (const MetricRecord& record : read_metrics(path)) list.append(to_dict(record));
  return list;
}

}  // namespace

void bind_training(nb::module_& m) {
  nb::class_<Config>(m, "Config")
      .def("__init__",
           [](Config* self, const std::string& path, const std::vector<std::string>& settings) {
             new (self) Config(load_config(path, settings));
           })
      .def_prop_ro("name", [](const Config& config) { return config.run.name; })
      .def_prop_ro("model_type", [](const Config& config) { return config.model.type; })
      .def("to_toml", [](const Config& config) { return to_toml(config); })
      .def("format_value", [](const Config& config, const std::string& key) {
        try {
          return format_config_value(config, key);
        } catch (const std::out_of_range&) {
          throw nb::key_error(key.c_str());
        }
      });
  m.def("train", &train, nb::arg("config"), nb::arg("run_dir"), nb::arg("data_dir"), nb::arg("resume"),
        nb::arg("quiet"), nb::arg("on_metrics").none());
  m.def("read_metrics", &read_metric_dicts);
}

}  // namespace tapeformer::python
