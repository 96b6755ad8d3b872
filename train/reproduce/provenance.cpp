#include "train/reproduce/provenance.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <string>

#include "core/system/machine.h"
#include "core/threads/threads.h"
#include "train/version.h"

namespace tapeformer {
namespace {

// Returns a text with the number of available cores, the name of the processor, and the supported extensions
// among AVX2, AVX-512, AVX512-BF16 and AMX.
std::string describe_machine() {
  const MachineInfo machine = get_machine_info();
  std::string name = machine.processor_name;
  for (const std::string mark : {"(R)", "(TM)"})
    for (size_t at; (at = name.find(mark)) != std::string::npos;) name.erase(at, mark.size());
  std::string extensions;
  for (const auto& [flag, text] : {std::pair{"avx2", "AVX2"},
                                   {"avx512f", "AVX-512"},
                                   {"avx512_bf16", "AVX512-BF16"},
                                   {"amx_bf16", "AMX"}})
    if (machine.instruction_set.find(flag) != std::string::npos)
      extensions += (extensions.empty() ? " (" : ", ") + std::string(text);
  if (!extensions.empty()) extensions += ")";
  return fmt::format("{} {} of {}{}", machine.processor_count,
                     machine.processor_count == 1 ? "core" : "cores",
                     name.empty() ? "an unknown processor" : name, extensions);
}

}  // namespace

nlohmann::ordered_json collect_provenance() {
  return {{"commit", get_source_commit()},
          {"machine", describe_machine()},
          {"threads", get_thread_count()},
          {"date", fmt::format("{:%Y-%m-%dT%H:%MZ}", fmt::gmtime(std::time(nullptr)))}};
}

}  // namespace tapeformer
