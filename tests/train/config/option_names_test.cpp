#include "train/config/option_names.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "core/options/option_names.h"
#include "core/system/files.h"
#include "train/build.h"
#include "train/config/schema.h"

using namespace tapeformer;

TEST_CASE("every option that a message of the library names has a config key or a command-line option") {
  std::set<std::string> known = {"--allow-commands", "--data-dir"};
  for (const SchemaKey& key : make_config_schema()) known.insert(key.name());
  use_keys_in_messages();
  size_t count = 0;
  const std::regex call("name_option\\(\"([A-Za-z:_]+)\"\\)");
  for (const char* const folder : {"core", "autograd", "ops", "models", "data"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".cpp") continue;
      const std::string text = read_file(entry.path().string());
      for (std::sregex_iterator at(text.begin(), text.end(), call), end; at != end; ++at, ++count) {
        const std::string member = (*at)[1];
        CAPTURE(member);
        CHECK(known.count(name_option(member)) == 1);
      }
    }
  set_option_names({});
  CHECK(count > 10);
  CHECK(name_option("AudioOptions::resample") == "AudioOptions::resample");
}
