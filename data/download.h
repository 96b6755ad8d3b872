// Getting a file over http or https with libcurl, where the build has it. No state; any thread.
#pragma once

#include <optional>
#include <string>

#include "data/file.h"

namespace tapeformer {

// Whether this build can download at all.
bool can_download();

// The contents behind an http:// or https:// URL; nothing when the server says that there is no such file.
// Follows redirections and honours the usual proxy variables. Throws DataError with the URL and the reason
// for every other failure, for more than max_bytes, for a transfer that ends early, and for a build without
// libcurl.
std::optional<Bytes> download(const std::string& url, int64_t max_bytes);

}  // namespace tapeformer
