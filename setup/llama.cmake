# Included after every project() of llama-cpp-python's build (CMAKE_PROJECT_INCLUDE): only the library, and quickly.
# Owns compile options; setup/native.py the rest.

# A normal variable hides the cache entry that llama-cpp-python forces: the `common` library is not built at all.
set(LLAMA_BUILD_COMMON OFF)

if(PROJECT_NAME STREQUAL "llama.cpp")
  # llama.cpp's own sources build graphs and read files; the arithmetic is all in ggml, which keeps -O3.
  if(NOT MSVC)
    string(REPLACE "-O3" "-O1" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
  endif()
  # Most of the compiler's time goes into the same headers and templates, again for every file: llama.cpp joins only
  # the files of its models, 16 at a time. Here all are joined, in fewer pieces that still keep several cores busy.
  function(vivace_join_sources)
    get_target_property(sources llama SOURCES)
    get_target_property(folder llama SOURCE_DIR)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    set(place 0)
    foreach(source IN LISTS sources)
      get_filename_component(source "${source}" ABSOLUTE BASE_DIR "${folder}")
      if(source MATCHES "models/")
        math(EXPR piece "${place} / 40")
        set(piece "models${piece}")
      else()
        math(EXPR piece "${place} / 8")
        set(piece "core${piece}")
      endif()
      math(EXPR place "${place} + 1")
      if(NOT source MATCHES "dsv4") # it has a function of the same name as another file
        set_source_files_properties("${source}" TARGET_DIRECTORY llama
          PROPERTIES SKIP_UNITY_BUILD_INCLUSION OFF UNITY_GROUP "${piece}")
      endif()
    endforeach()
    set_target_properties(llama PROPERTIES UNITY_BUILD_MODE GROUP)
  endfunction()
  if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.19)
    cmake_language(DEFER CALL vivace_join_sources)
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
