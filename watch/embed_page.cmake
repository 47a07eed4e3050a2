# cmake -D OUT=page_files.cc -D FOLDER=watch/page -P embed_page.cmake: the page's files as a source file, as bytes, so
# that nothing in them can end a literal.
set(files index.html braid.css proof.js draw.js braid.js)
set(types "text/html" "text/css" "text/javascript" "text/javascript" "text/javascript")
set(text "// Made by watch/embed_page.cmake.\n#include \"watch/page.h\"\n\nnamespace braid::watch {\nnamespace {\n\n")
set(list "")
foreach(file type IN ZIP_LISTS files types)
  file(READ ${FOLDER}/${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "((0x..,){24})" "\\1\n    " bytes "${bytes}")
  string(MAKE_C_IDENTIFIER "k_${file}" name)
  string(APPEND text "constexpr unsigned char ${name}[] = {\n    ${bytes}};\n")
  if(file STREQUAL index.html)
    set(path "/")
  else()
    set(path "/page/${file}")
  endif()
  string(APPEND list
    "      {\"${path}\", \"${type}; charset=utf-8\", {reinterpret_cast<const char*>(${name}), sizeof(${name})}},\n")
endforeach()
string(APPEND text "\n}  // namespace\n\nconst std::vector<PageFile>& page_files() {\n"
  "  static const std::vector<PageFile> kFiles{\n${list}  };\n  return kFiles;\n}\n\n}  // namespace braid::watch\n")
file(WRITE ${OUT} "${text}")
