"""tf.app and tf.flags: flags of the command line, and the program's main."""

import sys

_TRUE, _FALSE = ("true", "t", "1", "yes"), ("false", "f", "0", "no")


def _boolean(text):
    if text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"'{text}' is neither true nor false")


class _Values:
    """FLAGS: values by name, read of the command line when the first is asked for."""

    def __init__(self):
        self.__dict__.update(_kinds={}, _values={}, _parsed=False, _rest=[])

    def _define(self, name, kind, default):
        if name in self._kinds:
            raise ValueError(f"flag --{name} is defined twice")
        self._kinds[name], self._values[name] = kind, default

    def __call__(self, argv, known_only=False):
        """Takes the flags of a command line; gives what is left."""
        words, rest = list(argv[1:]), [argv[0]]
        while words:
            word = words.pop(0)
            name, is_given, text = word.lstrip("-").partition("=")
            if word == "--":
                rest += words
                break
            if not word.startswith("-") or (name not in self._kinds and name.removeprefix("no") not in self._kinds and known_only):
                rest.append(word)
                continue
            if name not in self._kinds and self._kinds.get(name.removeprefix("no")) is _boolean and not is_given:
                self._values[name.removeprefix("no")] = False
                continue
            if name not in self._kinds:
                raise SystemExit(f"unknown flag --{name}: there are {', '.join('--' + each for each in sorted(self._kinds))}")
            if not is_given:
                if self._kinds[name] is _boolean:
                    text = "true"
                elif not words:
                    raise SystemExit(f"flag --{name} needs a value")
                else:
                    text = words.pop(0)
            try:
                self._values[name] = self._kinds[name](text)
            except ValueError as error:
                raise SystemExit(f"flag --{name}={text}: {error}") from None
        self.__dict__.update(_parsed=True, _rest=rest)
        return rest

    def __getattr__(self, name):
        if name not in self._kinds:
            raise AttributeError(f"there is no flag --{name}")
        if not self._parsed:
            self(sys.argv, known_only=True)
        return self._values[name]

    def __setattr__(self, name, value):
        if name not in self._kinds:
            raise AttributeError(f"there is no flag --{name}")
        self._values[name] = value

    def flag_values_dict(self):
        return dict(self._values)


class _Flags:
    FLAGS = _Values()

    @staticmethod
    def _definer(kind):
        return lambda name, default, help="", **_: _Flags.FLAGS._define(name, kind, default)

    @staticmethod
    def DEFINE_enum(name, default, enum_values, help="", **_):  # noqa: N802
        def kind(text):
            if text not in enum_values:
                raise ValueError(f"it is one of {', '.join(enum_values)}")
            return text

        _Flags.FLAGS._define(name, kind, default)


flags = _Flags()
for _name, _kind in {"string": str, "integer": int, "float": float, "boolean": _boolean, "bool": _boolean,
                     "list": lambda text: [each for each in text.split(",") if each]}.items():
    setattr(_Flags, f"DEFINE_{_name}", staticmethod(_Flags._definer(_kind)))


def run(main=None, argv=None):
    """Reads the flags, and ends the process with what main(the other arguments) gives."""
    rest = flags.FLAGS(list(argv or sys.argv))
    main = main or sys.modules["__main__"].main
    sys.exit(main(rest))
