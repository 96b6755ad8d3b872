// Downloads with libcurl, an optional dependency. All functions are thread-safe.
#pragma once

#include <string>

#include "core/system/files.h"

namespace tapeformer {

// Returns whether the program was built with libcurl.
bool can_download();

// Downloads an https:// URL and appends the contents to `file`. Returns false if the server does not have the
// file. Redirections to other protocols are refused, and the certificate of the server is verified. http://
// is accepted only for localhost, 127.0.0.1 and [::1]. The environment variables of libcurl can set a proxy.
//
// Throws ConfigError for unsupported URLs, and FileError if `file` cannot be written. Throws DataError with
// the URL and the reason for all other failures: more than `max_bytes`, a truncated transfer, or a build
// without libcurl.
bool download(const std::string& url, File& file, int64_t max_bytes);

}  // namespace tapeformer
