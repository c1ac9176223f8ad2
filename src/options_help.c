#include "config.h"

#include "options.h"
#include "options_table.h"

void rf_options_print_help(FILE *out)
{
    fputs("rankflash: large language models on several MPI ranks, with DFlash2 drafts\n\n"
          "  mpirun -np 2 rankflash -m target.gguf -md drafter.gguf -p \"Where is Kenya?\"\n"
          "  rankflash --plan --ranks 4 -m target.gguf\n\n"
          "Defaults are in [brackets]. Given twice, the later value counts. Without -m a small demo pair runs.\n",
          out);
    rf_flags_print(rf_option_set(), out);
    fputs("\nExit codes: 0 done, 2 usage, 3 model or input file, 4 out of memory, 5 MPI or device,\n"
          "128 + signal when interrupted.\n",
          out);
}

void rf_options_print_version(FILE *out)
{
    fprintf(out, "rankflash %s\n", PACKAGE_VERSION);
#ifdef RF_HAVE_MPI
    fputs("MPI: yes\n", out);
#else
    fputs("MPI: no (one rank)\n", out);
#endif
#ifdef RF_HAVE_HWLOC
    fputs("hwloc: yes\n", out);
#else
    fputs("hwloc: no\n", out);
#endif
}
