# Compiler flags of the project's own targets. They are directory options, so neither a consumer nor an including project sees them.

set_property(GLOBAL PROPERTY USE_FOLDERS ON)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(PROJECT_IS_TOP_LEVEL)
    get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
    if(NOT multi_config AND NOT CMAKE_BUILD_TYPE)
        set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
    endif()
    set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
    if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
        find_program(CCACHE ccache)
        mark_as_advanced(CCACHE)
        if(CCACHE)
            set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
        endif()
    endif()
endif()

# Flags of the C++ compiler alone: those of nvcc are in GradusCuda.cmake.
function(gradus_cxx_options)
    foreach(option IN LISTS ARGN)
        add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${option}>)
    endforeach()
endfunction()

if(PROJECT_IS_TOP_LEVEL)
    gradus_cxx_options(-Wall -Wextra)
endif()
# GCC notes that passing vector types changed in GCC 4; every target here is built with the same flags.
gradus_cxx_options(-Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # False alarms of GCC 12: std::sort over a part of a small array counts as out of bounds.
    gradus_cxx_options(-Wno-array-bounds -Wno-stringop-overflow)
endif()
# A newer compiler than those the project is checked with warns of more; that must not stop anybody's build.
set(newest_GNU 13)
set(newest_Clang 15)
if(GRADUS_WERROR AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS "${newest_${CMAKE_CXX_COMPILER_ID}}")
    gradus_cxx_options(-Werror)
endif()
# -O2 after CMake's own -O3: only the kernels gain by more (kernels/CMakeLists.txt).
gradus_cxx_options($<$<CONFIG:Release>:-O2>)

if(GRADUS_NATIVE)
    include(CheckCXXCompilerFlag)
    check_cxx_compiler_flag(-march=native GRADUS_HAS_MARCH_NATIVE)
    if(GRADUS_HAS_MARCH_NATIVE)
        gradus_cxx_options(-march=native)
    endif()
endif()

if(GRADUS_SANITIZE)
    gradus_cxx_options(-fsanitize=${GRADUS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${GRADUS_SANITIZE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        # The checks a sanitizer inserts make GCC see paths that no program takes.
        gradus_cxx_options(-Wno-maybe-uninitialized)
    endif()
endif()
