# Included after every project() of llama-cpp-python's build (CMAKE_PROJECT_INCLUDE): only the library, and quickly.
# Under 2 min on 2 idle x86 cores (bench/results). Owns compile options; setup/native.py the rest.

# A normal variable hides the cache entry that llama-cpp-python forces: the `common` library is not built at all.
set(LLAMA_BUILD_COMMON OFF)

if(PROJECT_NAME STREQUAL "llama.cpp")
  # llama.cpp's own sources build graphs and read files; the arithmetic is all in ggml, which keeps -O3.
  set(CMAKE_UNITY_BUILD ON)
  if(NOT MSVC)
    string(REPLACE "-O3" "-O1" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
  endif()
elseif(PROJECT_NAME STREQUAL "ggml")
  set(CMAKE_UNITY_BUILD OFF) # its AMX file does not compile together with others
  if(NOT MSVC)
    string(REPLACE "-O1" "-O3" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|i.86" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include \"${CMAKE_CURRENT_LIST_DIR}/amx_tileconfig.h\">")
  endif()
  if(VIVACE_WITHOUT_AMX)
    include(CheckCXXCompilerFlag)
    check_cxx_compiler_flag(-mno-amx-tile VIVACE_KNOWS_AMX)
    if(VIVACE_KNOWS_AMX)
      add_compile_options(-mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
    endif()
  endif()
endif()
