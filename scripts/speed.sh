# The small pair that scripts/check --speed and scripts/performance measure. Source this.

# One rank with so many threads: alike on machines with two cores and more, so that reports can be compared.
speed_threads() {
    if [ "$(nproc)" -ge 2 ]; then echo 2; else echo 1; fi
}

# speed_pair BUILD FOLDER: FOLDER/speed.gguf and its drafter, above the caches but made in a second
speed_pair() {
    [ -e "$2/speed.gguf" ] && [ -e "$2/speed-drafter.gguf" ] && return
    "$1/rankflash-synth" --shape 0.8B --layers 8 --vocab 32768 --draft-layers 2 -o "$2/speed.gguf" -d "$2/speed-drafter.gguf" >/dev/null
}

speed_flags() {
    echo "-p 512 -d 0,4096 --rows 1,8,16"
}
