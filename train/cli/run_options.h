// Options of the commands that use a trained model. The options select the run, the checkpoint, the data and
// the output picture.
#pragma once

#include <filesystem>

#include "models/generation.h"
#include "train/checkpoint/run_directory.h"
#include "train/cli/common.h"
#include "train/tasks/autoregressive.h"
#include "train/tasks/data_access.h"
#include "train/tasks/registry/load_task.h"

namespace tapeformer {

// make_run_argument() returns the argument RUN, and make_checkpoint_option() the option --checkpoint.
PositionalArgument make_run_argument();
OptionSpec make_checkpoint_option();

// Returns the values of --data-dir and, if the command declares make_allow_commands_option(), of
// --allow-commands.
DataAccessOptions make_data_access(const CommandLine& line);

// Loads the run in the argument RUN on the device in --device. `purpose` determines the config keys that
// --set may change.
LoadedTask load_task(const CommandLine& line, ConfigPurpose purpose);

// What a command does with the models of one subject. Its options are those that not all forms have.
struct CommandForm {
  SubjectOptions options;
  void (*run)(const LoadedTask& run, const CommandLine& line);
};

// Returns the options of all subjects, each once. The help text of an option names its subjects.
std::vector<OptionSpec> merge_subject_options(const std::vector<SubjectOptions>& all);
std::vector<OptionSpec> merge_form_options(const std::vector<CommandForm>& forms);

// Returns the values of the options in `all` that occur on the command line. Throws ConfigError for options
// of other subjects than the subject of the task.
OptionValues read_subject_options(const std::vector<SubjectOptions>& all, const CommandLine& line,
                                  const Task& task);

// Runs the form of the subject of the task. Throws ConfigError if there is no such form, and for options of
// other forms.
void run_form(const std::string& command, const std::vector<CommandForm>& forms, const LoadedTask& run,
              const CommandLine& line);

// Adds the fields of a record to the report.
void add_fields(const MetricRecord& record, Report& report);

// Throws a ConfigError that consists of the text of `error` and advice on command-line options.
// `folder_option` is the option that chooses the run directory, such as "--run-dir".
[[noreturn]] void throw_with_option_advice(const RunDirectoryError& error, const std::string& folder_option);

// Returns the option --mode of generation.
OptionSpec make_generation_mode_option();
// Returns the generation mode in --mode. "auto" selects the recurrent form if all attention kinds of the
// model have a recurrent form. If an attention kind has none, "auto" selects recomputation and logs the
// reason, and "recurrent" throws ConfigError.
GenerationMode choose_generation_mode(const CommandLine& line, const AutoregressiveModel& model);
std::string to_string(GenerationMode mode);

// Returns the option --weights.
OptionSpec make_weights_option();
// Returns the format in --weights. Rounds the matrices of the model to WeightFormat::int8 if it is that one.
// Throws ConfigError if the model is not on the CPU.
WeightFormat apply_weights_option(const CommandLine& line, const Task& task);

// Returns the paths of the config, the metrics and the checkpoints of a run directory.
std::vector<std::filesystem::path> list_run_files(const std::filesystem::path& run_folder);
// Returns the files that a command with this config reads: the files of the run and of the data set. A folder
// stands for its files. Does not include the files of speech corpora; see list_input_files().
std::vector<std::filesystem::path> list_input_paths(const Config& config,
                                                    const std::filesystem::path& checkpoint_folder,
                                                    const std::string& data_dir);

// Returns the option --out of commands that write a picture.
OptionSpec make_picture_path_option();
// Throws ConfigError if the file name in --out does not end in ".png". Commands call the function before they
// load the run, so that the error is reported early.
void check_png_extension(const CommandLine& line);
// Returns the value of --out. If --out is empty, returns the path NAME-step-….png in the samples folder of
// the run or, for a checkpoint outside of a run directory, in the working directory. Creates the folder of
// the file. Throws ConfigError if --out is a file that the command reads, and std::runtime_error if the
// folder is not writable. Call the function before generating pictures, so that errors are reported early.
std::filesystem::path prepare_picture_path(const LoadedTask& run, const CommandLine& line,
                                           const std::string& name);
// Throws ConfigError if the grid of write_image_grid() with `count` images and `columns` columns exceeds
// kMaxPixels. Call this function before the images are generated.
void check_grid_size(const LoadedTask& run, int64_t count, int64_t columns);
// Writes a PNG file with a grid of `images`, of shape (count, bytes) and dtype uint8. If `columns` is 0, the
// grid is nearly square. If run.tensorboard is true, also adds the picture to the event files in the samples
// folder.
void write_image_grid(const LoadedTask& run, const std::filesystem::path& path, const Tensor& images,
                      int64_t columns);

}  // namespace tapeformer
